"""Runs a playbook: process, typed events, progress, journal, mutex."""
