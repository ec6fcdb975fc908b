"""The lines of fio's text output, by stat.c and diskutil.c of fio 2.0 to 3.41: what each one looks like, whole.

A pattern matches from the first character to the last, so that a line which was cut does not pass: where a number
stands at a line's end, its form is fixed, or nobody reads it.
"""

import re

from bisector.workload.fio.units import BYTES as _BYTES
from bisector.workload.fio.units import COUNT as _COUNT
from bisector.workload.fio.units import OLD_BYTES as _OLD_BYTES

_REAL = r"\d+\.\d+"
_HUNDREDTHS = r"\d+\.\d\d"
_SHARE = rf"(?:{_REAL}|-?nan)%"
_DISTRIBUTION = rf"(?:[>=]*\d+={_REAL}%, )*[>=]*\d+={_REAL}%"
_PAIR = r"\d+/\d+"


def _levels(*depths: int) -> str:
    return "".join(f"{depth}={_REAL}%, " for depth in depths) + f">=64={_REAL}%"


# Up to 2.0.7 it is "fio 2.0.7", and of 2.0.8 as Debian has it the number alone.
VERSION = re.compile(r"(?:fio[- ]|(?=\d+\.\d+\.\d+$))(?P<number>(?P<major>\d+)\.(?P<minor>\d+)[\w.-]*)")
OPTIONS = re.compile(
    r"(?P<name>.*): \(g=\d+\): rw=\w+, bs(?P<by_order>\(seq/rand\))?=(?P<bs>.+), ioengine=[^ ,]+, iodepth=\d+"
)
STARTING = re.compile(r"Starting (?:(?P<threads>\d+) threads?)?(?: and )?(?:(?P<processes>\d+) process(?:es)?)?")
JOB = re.compile(
    r"(?P<name>.*): \(groupid=(?P<group>\d+), jobs=(?P<members>\d+)\): err= ?(?P<error>\d+)(?: \(.*\))?: pid=\d+"
    r"(?:: (?P<ended>\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}))?"
)
GROUP = re.compile(r"Run status group (?P<group>\d+) \(all jobs\):")
DISKS = re.compile(r"Disk stats \(read/write\):")

OLD_DIRECTION = re.compile(
    rf"  (?P<name>read|write|trim|mixed) ?: io=(?P<io>{_OLD_BYTES}), bw=(?P<bw>{_OLD_BYTES})/s, "
    rf"iops=(?P<iops>{_COUNT}) ?, runt= *(?P<runtime>\d+)msec"
)
DIRECTION = re.compile(
    rf"  (?P<name>read|write|trim|mixed): IOPS=(?P<iops>{_COUNT}), BW=(?P<bw>{_BYTES})/s \({_BYTES}/s\)"
    rf"\((?P<io>{_BYTES})/(?P<runtime>\d+)msec\)(?:; \d+ zone resets|; Cachehit={_REAL}%)?"
)
LATENCY = re.compile(
    rf" +(?P<name>[a-z][a-z_]*(?: prio \d+/\d+)?) \((?P<unit>[num]sec)\) ?: min= *(?P<min>{_COUNT}) ?, "
    rf"max= *(?P<max>{_COUNT}) ?, avg= *(?P<mean>{_HUNDREDTHS}), stdev= *(?P<stddev>{_HUNDREDTHS})"
)
PERCENTILES = re.compile(r" +(?P<name>[a-z][a-z_]*(?: prio .+)?) percentiles \((?P<unit>[num]sec)\):")
PERCENTILE_ROW = re.compile(r" +\|(?: +\d+\.\d+th=\[ *\d+\],)*(?: +\d+\.\d+th=\[ *\d+\],?)")
PERCENTILE = re.compile(r"(\d+\.\d+)th=\[ *(\d+)\]")
IOPS = re.compile(
    rf" +iops +: min= *\d+, max= *\d+, avg= *{_HUNDREDTHS}, stdev= *(?P<stddev>{_HUNDREDTHS}), samples=\d+"
)
CPU = re.compile(
    rf" +cpu +: usr=(?P<user>{_REAL})%, sys=(?P<system>{_REAL})%, ctx=(?P<switches>\d+), majf=(?P<major>\d+), minf=\d+"
)
DEPTHS = re.compile(rf" +IO depths +: (?P<levels>{_levels(1, 2, 4, 8, 16, 32)})")
LEVEL = re.compile(rf"([>=]*\d+)=({_REAL})%")
SUBMIT = re.compile(rf" +submit +: {_levels(0, 4, 8, 16, 32, 64)}")
COMPLETE = re.compile(rf" +complete +: {_levels(0, 4, 8, 16, 32, 64)}")
OLD_ISSUED = re.compile(
    r" +issued +: total=r=(?P<read>\d+)/w=(?P<write>\d+)/[dt]=(?P<trim>\d+), short=r=\d+/w=\d+/[dt]=\d+"
    r"(?:, drop=r=\d+/w=\d+/[dt]=\d+)?"
)
ISSUED = re.compile(
    r" +issued rwts?: total=(?P<read>\d+),(?P<write>\d+),(?P<trim>\d+)(?:,\d+)?,? short=\d+,\d+,\d+(?:,\d+)?,?"
    r" dropped=\d+,\d+,\d+(?:,\d+)?"
)
# Written and not read; what is wrong with them is not looked for.
UNREAD = (
    re.compile(r"  Description  : \[.*\]"),
    re.compile(rf" +bw \( *[A-Za-z]+ */s *\) *: min= *\d+, max= *\d+, per={_SHARE}, avg= *{_REAL}, stdev= *{_REAL}.*"),
    re.compile(rf" +lat \([num]sec\) *: {_DISTRIBUTION}"),
    re.compile(r" +errors    : total=.*"),
    re.compile(r" +latency   : target=.*"),
    re.compile(r"  steadystate  : attained=.*"),
    re.compile(r"  [a-z_]+(?:/[a-z_]+)*:"),  # fsync/fdatasync/sync_file_range, whose latencies follow
)

OLD_TOTALS = re.compile(
    rf" +(?P<name>READ|WRITE|TRIM|MIXED): io=(?P<io>{_OLD_BYTES}), aggrb={_OLD_BYTES}/s, minb={_OLD_BYTES}/s, "
    rf"maxb={_OLD_BYTES}/s, mint=(?P<shortest>\d+)msec, maxt=(?P<longest>\d+)msec"
)
TOTALS = re.compile(
    rf" +(?P<name>READ|WRITE|TRIM|MIXED): bw={_BYTES}/s \({_BYTES}/s\), {_BYTES}/s-{_BYTES}/s "
    rf"\({_BYTES}/s-{_BYTES}/s\), io=(?P<io>{_BYTES}) \({_BYTES}\), run=(?P<shortest>\d+)-(?P<longest>\d+)msec"
)
DISK = re.compile(
    rf" +(?P<name>\S+): ios=(?P<ios>{_PAIR})(?:, sectors={_PAIR})?, merge=(?P<merges>{_PAIR}), "
    rf"ticks=(?P<ticks>{_PAIR}), in_queue=(?P<queue>\d+), util=(?P<util>{_REAL})%"
    rf"(?:, aggrios={_PAIR}(?:, aggsectors={_PAIR})?, aggrmerge={_PAIR}, aggrticks={_PAIR}, aggrin_queue=\d+, "
    rf"aggrutil={_REAL}%)?"
)
# Not indented, and told between figures: the run in progress, and fio's own messages.
ASIDE = re.compile(r"(?:Jobs: |fio: ).*|")
