"""What nobody types by chance: text, names and bodies that a server has to answer all the same."""

from __future__ import annotations

DEEP = 900  # levels: below what an interpreter's stack holds, and above what a parser's does

# fmt: off
TEXTS: tuple[str, ...] = (
    *("", " ", "\t\n", "\0", "a\0b", "x" * 100_000, "ä" * 3000, "🤖" * 50),
    *("\ud800", "\udfff\ud800", "\u202egpj.exe", "\ufeff1", "\u2028", "１２", "١٢٣", "²", "Ⅷ"),
    *(
        "../../../etc/passwd", "..", ".", "/", "//", "a/b", "..%2f..", "%2e%2e/", "%00", "%zz", "%", "..\\..\\x", "C:\\x", "CON",
        "~root",
    ),
    *("/etc/passwd", "file:///etc/passwd", "s3://bucket/x", "http://[::1", "models:/x/1", "models:/@", "d3ray:x", "-rf", "--help"),
    *(
        "-1", "0", "-0", "1", "0.5", "1e400", "-1e400", "1e-400", "nan", "NaN", "inf", "-Infinity", "0x10", "1_000", "1,5", "1e5",
        "+1",
    ),
    *("9" * 19, "9" * 400, "9" * 5000, "1" + "0" * 11, "-" + "9" * 400, "0." + "3" * 5000, "1e" + "9" * 400),
    *(
        "1 | 2", "|", " | ", "1 | a", "1 .. 2", "2 .. 1", "1 .. 1", "nan .. 1", "0 .. inf", "a .. b", "1 .. " + "9" * 400,
        "1e999 .. 2",
    ),
    *(
        "[", "]", "{", "}", "[]", "{}", "null", "true", "False", '""', '"', "'", "[null]", '["a"]', "[1, 2]", "[[1], 2]",
        "[true, NaN]",
    ),
    *('{"name": null}', '{"name": ["x"]}', '{"name": {"name": "x"}}', '{"name": "adam", "x": 1}', '{"a": 1, "a": 2}', '{"": ""}'),
    *('{"__class__": 1}', "[" + "1," * 30_000 + "1]", "1 " * 30_000, "1, " * 30_000),
    *("[" * DEEP + "]" * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP, "[" * 100_000, '{"a":' * 100_000),
    *(
        "!!python/object/apply:os.system [x]", "!x y", "&a [*a]", "*a", "&a x", "? x", "a: b: c", "a: [", "- - - a",
        "%YAML 1.1\n---\na: on",
    ),
    *(
        "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]", "a: 1\na: 2", "? [a]\n: b", "? {a: b}\n: c", "<<: {a: b}", "2026-01-31",
        "1:30:00",
    ),
    *(
        "<script>alert(1)</script>", "'\"><img src=x onerror=alert(1)>", "{{ 7 * 7 }}", "{% include 'x' %}", "${x}", "%s%n",
        "{0.__class__}",
    ),
    *(
        "'; drop table upload; --", "a\r\nSet-Cookie: a=b", "a=b&c=d", "=1+1", "x.y.z", ".", "...", "a.", ".a", "a..b",
        "algorithm.", "name",
    ),
)

YAMLS: tuple[str, ...] = (
    *(
        "algorithm: Nobody", "algorithm: 1", "algorithm: [BC]", "algorithm: {name: [BC]}", "algorithm: {name: null}",
        "algorithm: {}",
    ),
    *("algorithm: {name: BC, preset: 1}", "algorithm: {preset: x}", "algorithm: {name: ppo/PPO}", "algorithm: {name: rllib/PPO}"),
    *(
        "algorithm: BC\nseeds: 1", "algorithm: BC\nseeds: {}", "algorithm: BC\nseeds: [[]]", "algorithm: BC\nseeds: []",
        "- algorithm: BC",
    ),
    *(
        "algorithm: BC\ndataset: 1", "algorithm: BC\ndataset: {}", 'algorithm: BC\ndataset: "\\0"',
        "algorithm: BC\ndataset: " + "x/" * 5000,
    ),
    *(
        "algorithm: BC\nevaluation: 1", "algorithm: BC\nevaluation: {environment: {}}",
        "algorithm: BC\nevaluation: {environment: {id: 1}}",
    ),
    *(
        "algorithm: BC\nresources: 1", "algorithm: BC\nresources: {cpu: .inf}", "algorithm: BC\nresources: {gpu: x}",
        "algorithm: BC\nname: 1",
    ),
    *(
        "algorithm: BC\nsearch: 1", "algorithm: BC\nsearch: {x: 1}", "algorithm: BC\nsearch: {algorithm.gamma: {choice: 1}}",
        "algorithm: BC\n1: 2",
    ),
    *("algorithm: BC\nsearch: {algorithm.gamma: {uniform: [1, 0]}}", "algorithm: BC\nsearch: {algorithm.gamma: {choice: []}}"),
    *(
        "algorithm: BC\nsearch: {algorithm.gamma: [1]}", "algorithm: BC\nsearch: {algorithm.x: {choice: [1]}}",
        "algorithm: BC\nbudget: 1",
    ),
    *(
        "algorithm: BC\nobjective: 1", "algorithm: BC\nobjective: {metric: 1}", "algorithm: BC\nnull: 1", "algorithm: BC\n[1]: 2",
        "algorithm: BC\n{a: 1}: 2",
    ),
    *(
        "algorithm: " + "[" * DEEP + "]" * DEEP, "algorithm: " + "{name: " * DEEP + "}" * DEEP,
        "algorithm: BC\nseeds: " + "[" * DEEP + "]" * DEEP,
    ),
    *("algorithm: BC\nn_steps: " + "9" * 400, "algorithm: BC\nn_steps: 1e400", "algorithm: {name: BC, batch_size: 100000000000}"),
    *(
        "algorithm: BC\nseeds: [" + "1, " * 100_000 + "1]",
        "algorithm: {name: BC, encoder: {hidden_units: [" + "1, " * 10_000 + "1]}}",
    ),
)

# fmt: on

BODIES: tuple[tuple[str, bytes], ...] = (  # with their kind
    ("application/x-www-form-urlencoded", b"\xff\xfe=\xff&%ff=%fe&a=%c3%28"),
    ("application/x-www-form-urlencoded", b"%00=%00&&&=&a=&=b;c=d"),
    ("application/x-www-form-urlencoded", b"&".join(b"a=%d" % k for k in range(1500))),
    ("application/x-www-form-urlencoded", b"name=" + b"x" * (2 << 20)),
    ("application/x-www-form-urlencoded", b"name=a&name=b&name=&algorithm=BC&algorithm=IQL&seeds=1&seeds=2"),
    ("application/x-www-form-urlencoded; charset=utf-16", "name=a".encode("utf-16")),
    ("application/x-www-form-urlencoded; charset=nothing", b"name=a"),
    ("application/json", b'{"name": "a"}'),
    ("application/json", b"[" * 100_000),
    ("multipart/form-data", b"--x\r\n\r\n--x--"),
    ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="name"\r\n\r\na\r\n--x--\r\n'),
    ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="../a"; filename="../../b"\r\n\r\n\xff\0'),
    ("multipart/form-data; boundary=" + "x" * 3000, b"--"),
    ("text/plain", b"\0" * 1000),
    ("", b"name=a"),
)
