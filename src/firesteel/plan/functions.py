"""The functions that expressions may call: PySpark's names and parameters, Catalyst's class and fields, the type of the result. A line each.

A line has four parts, separated by ``;``: names, parameters, class with fields, type. A parameter with ``!`` takes a constant where others take a column's
name; ``=`` gives its default, ``?`` one of none, ``*`` means any number. A field takes the next parameter in a type of ``coercion`` (``!``: one of another type is not cast).
A field with ``=`` is a constant, which the analysis may give (``CONSTANTS``). A type with ``=`` is a rule of ``TYPES``. A line of three parts ends with
a call of other functions, or with the name of a rule of ``analysis``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from firesteel.plan.coercion import VOID, array_of, decimal, map_of, struct_of
from firesteel.plan.expr import Expr
from firesteel.plan.types import decimal_of, element_of, entry_of, fields_of

_LINES = """
abs; col; Abs child:number failOnError=ANSI; =child
negative negate; col; UnaryMinus child:number failOnError=ANSI; =child
positive; col; =positive
ceil ceiling; col; Ceil child:double/decimal/long failOnError=ANSI; =whole
floor; col; Floor child:double/decimal/long failOnError=ANSI; =whole
round; col scale!=0; Round child:number scale:!integer ansiEnabled=ANSI; =rounded
bround; col scale!=0; BRound child:number scale:!integer ansiEnabled=ANSI; =rounded
rint; col; Rint child:double; double
sqrt; col; Sqrt child:double; double
exp; col; Exp child:double; double
expm1; col; Expm1 child:double; double
ln; col; Log child:double; double
log10; col; Log10 child:double; double
log2; col; Log2 child:double; double
log1p; col; Log1p child:double; double
log; arg1 arg2?; =log
pow power; col1 col2; Pow left:double right:double; double
atanh; col; Atanh child:double; double
cbrt; col; Cbrt child:double; double
sin; col; Sin child:double; double
cos; col; Cos child:double; double
tan; col; Tan child:double; double
cot; col; Cot child:double; double
sec; col; Sec child:double; double
csc; col; Csc child:double; double
asin; col; Asin child:double; double
acos; col; Acos child:double; double
atan; col; Atan child:double; double
atan2; col1 col2; Atan2 left:double right:double; double
sinh; col; Sinh child:double; double
cosh; col; Cosh child:double; double
tanh; col; Tanh child:double; double
signum sign; col; Signum child:double; double
degrees toDegrees; col; ToDegrees child:double; double
radians toRadians; col; ToRadians child:double; double
factorial; col; Factorial child:integer; long
isnan; col; IsNaN child:double/float; boolean
bin; col; Bin child:long; string
conv; col fromBase! toBase!; Conv numExpr:string fromBaseExpr:integer toBaseExpr:integer ansiEnabled=ANSI; string
hex; col; Hex child:long/binary/string; string
unhex; col; Unhex child:string failOnError=False; binary
bitwise_not bitwiseNOT ~; col; BitwiseNot child:integral; =child
bit_count; col; BitwiseCount child:!integral/boolean; integer
bit_get getbit; col pos; BitwiseGet left:integral right:integer; byte
shiftleft shiftLeft; col numBits!; ShiftLeft left:integer/long right:integer; =child
shiftright shiftRight; col numBits!; ShiftRight left:integer/long right:integer; =child
shiftrightunsigned shiftRightUnsigned; col numBits!; ShiftRightUnsigned left:integer/long right:integer; =child
upper ucase; col; Upper child:string; string
lower lcase; col; Lower child:string; string
initcap; col; InitCap child:string; string
trim; col trim?; StringTrim srcStr:string trimStr:string; string
ltrim; col trim?; StringTrimLeft srcStr:string trimStr:string; string
rtrim; col trim?; StringTrimRight srcStr:string trimStr:string; string
btrim; str trim?; trim(str, trim)
length char_length character_length; col; Length child:string/binary; integer
octet_length; col; OctetLength child:string/binary; integer
bit_length; col; BitLength child:string/binary; integer
ascii; col; Ascii child:string; integer
char chr; col; Chr child:long; string
substring substr; str pos len=2147483647; Substring str:string/binary pos:integer len:integer; =child
left; str len; substring(str, 1, len)
right; str len; =right
substring_index; str delim! count!; SubstringIndex strExpr:string delimExpr:string countExpr:integer; string
instr; str substr!; StringInstr str:string substr:string; integer
position; substr str start=1; locate(substr, str, start)
locate; substr! str pos!=1; StringLocate substr:string str:string start:integer; integer
lpad; col len! pad!; StringLPad str:string len:integer pad:string; string
rpad; col len! pad!; StringRPad str:string len:integer pad:string; string
repeat; col n; StringRepeat str:string times:integer; string
replace; src search replace=''; StringReplace srcExpr:string searchExpr:string replaceExpr:string; string
translate; srcCol matching! replace!; StringTranslate srcExpr:string matchingExpr:string replaceExpr:string; string
overlay; src replace pos len=-1; Overlay input:string/binary replace:string/binary pos:integer len:integer; =child
reverse; col; Reverse child:string/binary/array; =child
levenshtein; left right; Levenshtein left:string right:string threshold=None; integer
split; str pattern! limit=-1; StringSplit str:string regex:string limit:integer; =strings
soundex; col; SoundEx child:!string; string
mask; col upperChar='X' lowerChar='x' digitChar='n' otherChar?; Mask input:!string upperChar:!string lowerChar:!string digitChar:!string otherChar:!string; string
format_number; col d!; FormatNumber x:!number d:integer; string
get_json_object; col path!; GetJsonObject json:!string path:!string; string
find_in_set; str str_array; FindInSet left:string right:string; integer
str_to_map; text pairDelim=',' keyValueDelim=':'; StringToMap text:!string pairDelim:!string keyValueDelim:!string; =texts_by_text
startswith; str prefix; StartsWith left:string right:string; boolean
endswith; str suffix; EndsWith left:string right:string; boolean
contains; left right; Contains left:string right:string; boolean
like; str pattern; Like left:string right:string escapeChar='\\\\'; boolean
rlike regexp regexp_like; str regexp; RLike left:string right:string; boolean
regexp_extract; str pattern! idx!; RegExpExtract subject:string regexp:string idx:integer; string
regexp_extract_all; str regexp idx=1; RegExpExtractAll subject:string regexp:string idx:integer; =strings
regexp_count; str regexp; array_size(regexp_extract_all(str, regexp, 0))
regexp_instr; str regexp idx=0; RegExpInStr subject:string regexp:string idx:integer; integer
regexp_substr; str regexp; nullif(regexp_extract(str, regexp, 0), '')
regexp_replace; string pattern! replacement!; RegExpReplace subject:string regexp:string rep:string pos=1; string
md5; col; Md5 child:binary; string
sha1 sha; col; Sha1 child:binary; string
crc32; col; Crc32 child:binary; long
hash; *cols; =hash
xxhash64; *cols; =xxhash64
sha2; col numBits!; Sha2 left:binary right:integer; string
base64; col; =base64
unbase64; col; UnBase64 child:string failOnError=False; binary
year; col; Year child:date; integer
quarter; col; Quarter child:date; integer
month; col; Month child:date; integer
dayofmonth day; col; DayOfMonth child:date; integer
dayofweek; col; DayOfWeek child:date; integer
weekday; col; WeekDay child:date; integer
dayofyear; col; DayOfYear child:date; integer
weekofyear; col; WeekOfYear child:date; integer
monthname; col; MonthName child:date; string
dayname; col; DayName child:date; string
hour; col; Hour child:time timeZoneId=ZONE; integer
minute; col; Minute child:time timeZoneId=ZONE; integer
second; col; Second child:time timeZoneId=ZONE; integer
date_add dateadd; start days; DateAdd startDate:date days:!integer/short/byte; date
date_sub; start days; DateSub startDate:date days:!integer/short/byte; date
datediff date_diff; end start; DateDiff endDate:date startDate:date; integer
add_months; start months; AddMonths startDate:date numMonths:integer; date
months_between; date1 date2 roundOff!=True; MonthsBetween date1:clock date2:clock roundOff:boolean timeZoneId=ZONE; double
last_day; date; LastDay startDate:date; date
next_day; date dayOfWeek!; NextDay startDate:date dayOfWeek:string failOnError=ANSI; date
make_date; year month day; MakeDate year:integer month:integer day:integer failOnError=ANSI; date
trunc; date format!; TruncDate date:date format:string; date
date_trunc; format! timestamp; TruncTimestamp format:string timestamp:timestamp timeZoneId=ZONE; timestamp
unix_date; col; UnixDate child:!date; integer
date_from_unix_date; days; DateFromUnixDate child:integer; date
extract date_part datepart; field! source; =extract
timestamp_seconds; col; SecondsToTimestamp child:!number; timestamp
timestamp_millis; col; MillisToTimestamp child:!integral; timestamp
timestamp_micros; col; MicrosToTimestamp child:!integral; timestamp
unix_seconds; col; UnixSeconds child:!time; long
unix_millis; col; UnixMillis child:!time; long
unix_micros; col; UnixMicros child:!time; long
from_utc_timestamp; timestamp tz!; FromUTCTimestamp left:timestamp right:string; timestamp
to_utc_timestamp; timestamp tz!; ToUTCTimestamp left:timestamp right:string; timestamp
convert_timezone; sourceTz! targetTz! sourceTs; ConvertTimezone sourceTz:string targetTz:string sourceTs:timestamp_ntz; timestamp_ntz
timestamp_add; unit! quantity ts; =timestamp_add
to_timestamp_ntz; timestamp; =to_timestamp_ntz
make_timestamp_ntz; years months days hours mins secs; =make_timestamp_ntz
date_format; date format!; DateFormatClass left:clock right:string timeZoneId=ZONE; string
isnull; col; IsNull child:any; boolean
isnotnull; col; IsNotNull child:any; boolean
not !; col; Not child:boolean; boolean
ifnull nvl; col1 col2; coalesce(col1, col2)
nvl2; col1 col2 col3; iff(isnotnull(col1), col2, col3)
zeroifnull; col; coalesce(col, 0)
when; *branches; =case
coalesce; *cols; =coalesce
nullif; col1 col2; =nullif
nullifzero; col; nullif(col, 0)
iff; condition yes no; =iff
greatest; *cols; =greatest
least; *cols; =least
nanvl; col1 col2; =nanvl
concat; *cols; =concat
concat_ws; sep! *cols; =concat_ws
in; *values; =among
and; left right; =and
or; left right; =or
&; left right; =bits_and
|; left right; =bits_or
^; left right; =bits_xor
+; left right; =Add
-; left right; =Subtract
*; left right; =Multiply
/; left right; =Divide
% mod; left right; =Remainder
try_divide; left right; =try
try_mod; left right; =try
pmod; dividend divisor; =Pmod
div; left right; =IntegralDivide
= ==; left right; =EqualTo
<; left right; =LessThan
>; left right; =GreaterThan
<=; left right; =LessThanOrEqual
>=; left right; =GreaterThanOrEqual
<=> equal_null; col1 col2; =EqualNullSafe
to_date; col format!?; =to_date
typeof; col; =typeof
struct; *cols; =struct
array; *cols; =array
create_map; *cols; =map
named_struct; *cols; =named_struct
size cardinality; col; Size child:array/map legacySizeOfNull=LEGACY; integer
array_size; col; Size child:array legacySizeOfNull=False; integer
array_contains; col value!; =array_contains
array_position; col value!; =array_position
array_append; col value!; =array_append
array_prepend; col value!; =array_prepend
array_insert; arr pos value!; =array_insert
array_compact; col; =array_compact
array_sort; col; =array_sort
arrays_zip; *cols; =arrays_zip
sequence; start stop step?; =sequence
array_remove; col element!; =array_remove
array_distinct; col; ArrayDistinct child:array; =child
array_max; col; ArrayMax child:array; =element
array_min; col; ArrayMin child:array; =element
array_union; col1 col2; =array_union
array_intersect; col1 col2; =array_intersect
array_except; col1 col2; =array_except
arrays_overlap; a1 a2; =arrays_overlap
array_join; col delimiter! null_replacement!?; ArrayJoin array:!strings delimiter:!string nullReplacement:!string; string
array_repeat; col count; ArrayRepeat left:any right:!integer; =repeated
sort_array; col asc!=True; SortArray base:array ascendingOrder:boolean; =child
slice; x start length; Slice x:array start:integer length:integer; =child
flatten; col; Flatten child:arrays; =element
element_at; col extraction!; =element_at
try_element_at; col extraction!; =try_element_at
get; col index; GetArrayItem child:array ordinal:integral failOnError=False; =element
map_keys; col; MapKeys child:map; =keys
map_values; col; MapValues child:map; =values
map_entries; col; MapEntries child:map; =entries
map_from_arrays; col1 col2; MapFromArrays left:array right:array; =map_of_arrays
map_from_entries; col; MapFromEntries child:entries; =map_of_entries
map_concat; *cols; =map_concat
map_contains_key; col value!; array_contains(map_keys(col), value)
transform; col &f; =ArrayTransform
filter; col &f; =ArrayFilter
exists; col &f; =ArrayExists
forall; col &f; =ArrayForAll
zip_with; left right &f; =ZipWith
map_zip_with; col1 col2 &f; =MapZipWith
map_filter; col &f; =MapFilter
transform_keys; col &f; =TransformKeys
transform_values; col &f; =TransformValues
aggregate reduce; col initialValue &merge &finish?; =ArrayAggregate
split_part; src delimiter partNum; =split_part
ilike; str pattern; like(lower(str), lower(pattern))
encode; col charset!; Encode value:string charset:string; binary
decode; col charset!; StringDecode bin:binary charset:string; string
pi; ; 3.141592653589793
e; ; 2.718281828459045
"""


@dataclass(frozen=True, slots=True)
class Parameter:
    """``constant``: a text is one, and not a column's name. ``default``: in a tuple, if there is one. ``several``: any number of arguments."""

    name: str
    constant: bool = False
    default: tuple[Any, ...] = ()
    several: bool = False
    function: bool = False
    """It is a function of Columns."""


@dataclass(frozen=True, slots=True)
class Function:
    """``fields``: of ``cls``, each with the type that it takes, or with a constant. ``type``: of the result, or a rule for it. ``call``: in
    the place of a class, what the function stands for; ``rule``: in their place, the name of the rule that resolves it."""

    name: str
    parameters: tuple[Parameter, ...]
    cls: str = ""
    fields: tuple[tuple[str, str | tuple[Any]], ...] = ()
    type: str = ""
    call: ast.expr | None = None
    rule: str = ""


CONSTANTS = ("ANSI", "LEGACY", "ZONE")
"""Whether the analysis is in ANSI mode, whether it is not, and the zone of its session."""


def _parameter(text: str) -> Parameter:
    text, has_default, default = text.partition("=")
    optional = text.endswith("?")
    defaults = (ast.literal_eval(default),) if has_default else (None,) if optional else ()
    name = text.strip("*&!?")
    return Parameter(name, "!" in text, defaults, text.startswith("*"), text.startswith("&"))


def _field(text: str) -> tuple[str, str | tuple[Any]]:
    name, is_constant, value = text.partition("=")
    if not is_constant:
        name, _, kind = text.partition(":")
        return name, kind
    return name, (value if value in CONSTANTS else ast.literal_eval(value),)


def _read(line: str) -> list[tuple[str, Function]]:
    names, parameters, *rest = (part.strip() for part in line.split(";"))
    taken = tuple(map(_parameter, parameters.split()))

    def of(name: str) -> Function:
        if len(rest) == 2:
            cls, *fields = rest[0].split()
            return Function(name, taken, cls, tuple(map(_field, fields)), rest[1])
        if rest[0].startswith("="):
            return Function(name, taken, rule=rest[0][1:])
        return Function(name, taken, call=ast.parse(rest[0], mode="eval").body)

    return [(name, of(name)) for name in names.split()]


FUNCTIONS: dict[str, Function] = {
    name: function for line in _LINES.strip().splitlines() for name, function in _read(line)
}
"""By name, those that are written as operators among them."""


_NAMES = {
    **{one.cls or one.rule: name for name, one in reversed(FUNCTIONS.items()) if one.cls or one.rule[:1].isupper()},
    "Murmur3Hash": "hash",
    "XxHash64": "xxhash64",
}
"""What users call a class. Others have the name of their class."""


def said_function(node: Expr) -> str:
    """What users call the function of an expression or an aggregate."""
    node = node["aggregateFunction"] if node.cls == "AggregateExpression" else node
    name = _name(node) or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", node.cls).lower()
    return f"the {'function' if name[0].isalpha() else 'operator'} {name}"


def about(node: Expr, reason: str) -> str:
    """The reason with the function or the column that it is about, if it does not name it."""
    if node.cls in ("AttributeReference", "Alias"):
        return f"the column {node.get('name')}: {reason}" if node.get("name") else reason
    name = _name(node["aggregateFunction"] if node.cls == "AggregateExpression" else node)
    return reason if not name or name in reason or "the function " in reason else f"{said_function(node)}: {reason}"


def _name(node: Expr) -> str:
    return node.name or _NAMES.get(node.cls, "")


def _rounded(kind: Any, places: Any) -> Any:
    found = decimal_of(kind)
    if found is None:
        return kind
    digits, scale = found
    if places is None:
        return kind
    if places < 0:
        return decimal(min(max(digits - scale + 1, 1 - places), 38), 0)
    return decimal(min(digits - scale + 1 + min(scale, places), 38), min(scale, places))


def _entry(node: Expr) -> tuple[Any, Any]:
    return entry_of(node.type) or (VOID, VOID)


def _whole(kind: Any) -> Any:
    found = decimal_of(kind)
    return "long" if found is None else decimal(min(found[0] - found[1] + (found[1] != 0), 38), 0)


TYPES: dict[str, Callable[[list[Any]], Any]] = {
    "child": lambda given: given[0].type,
    "element": lambda given: element_of(given[0].type),
    "strings": lambda given: array_of("string"),
    "texts_by_text": lambda given: map_of("string", "string"),
    "repeated": lambda given: array_of(given[0].type),
    "keys": lambda given: array_of(_entry(given[0])[0]),
    "values": lambda given: array_of(_entry(given[0])[1]),
    "entries": lambda given: array_of(struct_of(zip(("key", "value"), _entry(given[0]), strict=True))),
    "map_of_arrays": lambda given: map_of(element_of(given[0].type), element_of(given[1].type)),
    "map_of_entries": lambda given: map_of(*(kind for _, kind in fields_of(element_of(given[0].type)) or [])),
    "whole": lambda given: _whole(given[0].type),
    "rounded": lambda given: _rounded(given[0].type, given[1]["value"]),
}
"""Types of results, by the arguments."""
