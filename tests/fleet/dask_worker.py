"""``dask worker``, as a person starts it, with the turn of a host of the tests."""

from distributed.cli.dask_worker import main

from tests.fleet import on_host  # noqa: F401 - the turn

if __name__ == "__main__":
    main()
