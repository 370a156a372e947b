"""The reference pages of docs/, made from the code: what the program does cannot differ from what they say.

``python -m clusterctl.reference`` (script/reference) writes them; a test compares them with the files.
"""
