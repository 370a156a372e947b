"""Harbor: what the settings declare of it, what it has, and how the one becomes the other.

``settings`` reads what is declared, ``client`` speaks the API, a module a kind of object knows how it is
looked up, compared and written, ``reconcile`` plans and applies all of it.
"""
