"""The connection between hosts: the one package that imports ``distributed``, itself imported only when asked for."""
