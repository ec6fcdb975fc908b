"""What the programs in a sound guest print: LVM, device-mapper and fio, as a real one recorded them."""

from pathlib import Path

from tests.guestshell import Answer

_FIO = Path(__file__).parent / "data" / "fio"

FIO_RUNS = "--output-format=json"
STORAGE = {
    "stat -L": Answer("fe:10\nfe:20\n"),
    "stat -f": Answer("235000 4096\n"),
    "dmsetup table": Answer("0 2088960 cache 253:1 253:0 253:3 128 1 writeback smq 2 migration_threshold 2048\n"),
    "dmsetup status": Answer(
        "0 2088960 cache 8 11/2048 128 1024/1024 103 75 146 8 0 1024 269 1 writeback "
        "2 migration_threshold 2048 smq 0 rw - \n"
    ),
    "dmsetup deps": Answer(
        "b-cdata: 1 dependencies\t: (254, 16)\nb-cmeta: 1 dependencies\t: (254, 16)\n"
        "b-origin: 3 dependencies\t: (253, 3) (253, 0) (253, 1)\nb-corig: 1 dependencies\t: (254, 32)\n"
    ),
    "dmsetup info": Answer("b-cdata 253 0\nb-cmeta 253 1\nb-origin 253 2\nb-corig 253 3\n"),
}
FIO_FILES = {
    name: (_FIO / source).read_text(encoding="utf-8")
    for name, source in (("fio.json", "partial-3.33.json"), ("partial_iops.1.log", "partial_iops.1.log"))
}


def listed(*names: str, size_bytes: int = 100) -> str:
    """What stat(1) prints of the files that fio left."""
    return "".join(f"{size_bytes} {name}\n" for name in names)


FIO = Answer(
    listed("fio.json", "job.fio", "partial_iops.1.log"),
    "\n@uptime 10.00\nJobs: 2 (f=2): [r(2)][50.0%][r=4MiB/s][r=1024 IOPS][eta 00m:20s]\r\n"
    "Jobs: 2 (f=2): [r(2)][100.0%][r=8MiB/s][r=2048 IOPS][eta 00m:00s]\r\n@uptime 53.25\n",
)
