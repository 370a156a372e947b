"""The probe: collects raw evidence on one node and judges nothing.

It is shipped to nodes as one text (see `clustercheck.shipment`) and runs there from standard input, as root,
on the standard library of Python 3.8 or newer alone. Every program that it calls has a time limit of its own.
"""
