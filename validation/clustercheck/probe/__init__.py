"""The probe: collects raw evidence on one node and judges nothing.

It is shipped to nodes as one text (`clustercheck.evidence.shipment`) and runs there from standard input, as
root, with nothing but the standard library of Python 3.9 or newer. Each program that it calls has a time
limit.
"""
