"""The API of a stand-in Harbor, with the manners of the real one, its traps among them.

Standard library alone, for it runs in a container that has Python and nothing else: ``python3 -m api
--state FILE`` beside the package, or ``serving()`` in a test. All that it knows is in one SQLite file.
"""
