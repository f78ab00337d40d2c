import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.errors import UsageError
from stages.memory.readers import READERS
from stages.retrieval.grammar import parse_reading, parse_readings, reading_name


@pytest.mark.parametrize(
    ("typed", "spelled"),
    [
        ("external:k=1024,lambda=0.25", "external:lambda=0.25,k=1024"),
        (
            "external:lambda=.10/0.2/0.3,temperature=tune",
            "external:temperature=tune,lambda=0.1/0.2/0.3",
        ),
        (
            "external:lambda=tune,reader=interpolate,exact=false",
            "external:temperature=tune,lambda=tune",
        ),
        ("external:lambda=learned", "external:temperature=tune,lambda=learned"),
        ("external:lambda=tune,temperature=1", "external:temperature=1,lambda=tune"),
        ("external:lambda=tune,theta=0.5", "external:theta=0.5,lambda=tune"),
        ("external:lambda=0.1/0.2", "external:lambda=0.1/0.2"),
        ("external:theta=0,lambda=0,exact=true", "external:theta=0,lambda=0,exact=true"),
        ("external+local:k=8/4,lambda=0.1", "local+external:lambda=0.1,k=4/8"),
        (
            "external+long+local:size=2/1,reader=joint,k=8",
            "local+long+external:reader=joint,size=1/2,k=8",
        ),
        ("long:size=2000,theta=.30,lambda=0.1", "long:theta=0.3,lambda=0.1,size=2000"),
        (
            "long:size=50/100,scope=document,lambda=tune",
            "long:temperature=tune,lambda=tune,size=50/100,scope=document",
        ),
        (
            "long+local:size=8,reader=joint,alpha=-2/0/1.5",
            "local+long:reader=joint,alpha=-2/0/1.5,size=8",
        ),
        ("long:size=8,reader=joint,alpha=0,scope=stream", "long:reader=joint,size=8"),
        ("local:lambda=0.1234567890123456", "local:lambda=0.1234567890123456"),
    ],
)
def test_a_reading_has_one_spelling_and_reads_itself_back(typed, spelled):
    reading = parse_reading(typed)
    assert reading.spelled == spelled
    assert parse_reading(spelled) == reading


SIZES = "128/256/512/1024/2048/4096/8192/12288"


@pytest.mark.parametrize(
    ("name", "spelled"),
    [
        ("knn-lm", ["external:temperature=tune,lambda=tune"]),
        ("neural-cache", ["long:theta=tune,lambda=tune,size=tune"]),
        ("trime", ["local:reader=joint,similarity=scaled-dot,temperature=tune"]),
        (
            "trime-long",
            [f"local+long:reader=joint,similarity=scaled-dot,temperature=tune,size={SIZES}"],
        ),
        (
            "trime-ext",
            [
                f"local+long+external:reader=joint,similarity=scaled-dot,temperature=tune,size={SIZES}",
                "external:similarity=dot,temperature=tune,lambda=tune",
            ],
        ),
    ],
)
def test_a_name_stands_for_its_readings(name, spelled):
    assert [reading.spelled for reading in parse_readings((name,))] == spelled


def test_values_have_the_types_of_the_contract():
    reading = parse_reading("external:k=8/16,lambda=0.25,temperature=2,similarity=dot,key=hidden")
    assert (reading.value("k"), reading.weight, reading.comparison.temperature) == (
        (8, 16),
        (0.25,),
        (2.0,),
    )
    assert (reading.comparison.similarity, reading.comparison.key, reading.value("exact")) == (
        "dot",
        "hidden",
        False,
    )


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("external:lamda=0.2", "unknown key 'lamda'; did you mean 'lambda'"),
        ("extrenal:lambda=0.2", "no source is called 'extrenal'; did you mean 'external'"),
        ("my-own:lambda=0.2", r"known: .*trime.* \(MEMLM_PARTS adds your own\)"),
        (
            "trime-ext:k=3",
            "'trime-ext' stands for local.*joint.* --memory external:.*; write that out",
        ),
        ("knn-l", "did you mean 'knn-lm'"),
        ("external:reader=jont", "no reader is called 'jont'; did you mean 'joint'"),
        ("external", "lambda is missing: give lambda=0.25, or lambda=tune"),
        ("external:lambda=1", "lambda: Input should be less than 1"),
        ("external:lambda=nan", "finite"),
        ("external:lambda=-0.1", "greater than or equal to 0"),
        ("external:lambda=0.1/x", r"valid number.*given: x"),
        ("external:lambda=", "'lambda' has no value"),
        ("external:lambda=0.1,lambda=0.2", "'lambda' is given twice"),
        ("external:lambda=0.1,k=0", "k: Input should be greater than 0"),
        ("external:lambda=0.1,temperature=0", "temperature: Input should be greater than 0"),
        ("external:lambda=0.1,temperature=1,theta=1", "temperature or theta, not both"),
        ("external:lambda=0.1,exact=maybe", "exact: Input should be a valid boolean"),
        ("external:lambda=0.1,similarity=cos", "'dot', 'scaled-dot' or 'l2'"),
        ("external:lambda=learned,searched=0.5,pointers=3", "both say when to search"),
        ("long+external:lambda=0.1,size=3,pointers=3", "both say when to search"),
        ("external:lambda=0.1,pointers=0", "pointers: Input should be greater than 0"),
        ("external:lambda=0.1,size=3", "'size' belongs to 'long' and 'exact-stream' alone"),
        ("local:lambda=0.1,size=3", "'size' belongs to 'long' and 'exact-stream' alone"),
        ("local:lambda=0.1,scope=stream", "'scope' belongs to 'long' alone"),
        ("long:lambda=0.1,size=3,k=3", "'k' belongs to 'external' and 'similar-pairs' alone"),
        ("long:lambda=0.1,size=3,alpha=1", "'alpha' belongs to 'joint' alone"),
        ("local:reader=joint,lambda=0.1", "'lambda' belongs to 'interpolate' alone"),
        ("long:lambda=0.1", "size is missing: give size=2000, or size=tune"),
        ("long:lambda=0.1,size=0", "size: Input should be greater than 0"),
        ("long:lambda=0.1,size=2,scope=page", "'stream' or 'document'"),
        ("local:reader=joint,alpha=inf", "alpha: .*finite"),
        (
            "neural-cache:size=3",
            "'neural-cache' stands for long:size=tune,theta=tune,lambda=tune; write that out to change it: "
            "--memory long:size=3,theta=tune,lambda=tune",
        ),
        ("external+external:lambda=0.1", "named twice"),
        ("none:k=3", "no source is called 'none'"),
    ],
)
def test_what_is_wrong_is_said(typed, words):
    with pytest.raises(UsageError, match=words) as error:
        parse_reading(typed)
    assert typed in str(error.value)


@pytest.mark.parametrize("k", ["tune", "4/8"])
def test_a_union_with_long_has_one_number_of_neighbours(k):
    with pytest.raises(UsageError, match="k must be one number where long and external are joined"):
        parse_reading(f"long+external:size=3,lambda=0.1,k={k}")
    assert parse_reading("local+external:k=tune,lambda=0.1").value("k") == "tune"


NUMBERS = st.floats(0, 0.99)
LISTS = st.lists(NUMBERS, min_size=1, max_size=3).map(tuple)
COUNTS = st.lists(st.integers(1, 10**6), min_size=1, max_size=3)


SOURCES = [
    "local",
    "long",
    "external",
    "local+long",
    "long+local",
    "external+local",
    "local+long+external",
]


@st.composite
def readings(draw):
    """The text of a legal reading, keys in any order."""
    sources = draw(st.sampled_from(SOURCES))
    reader = draw(st.sampled_from(READERS.names()))
    ((name, number),) = READERS.settings(reader).hyperparameters().items()
    weights = draw(st.lists(st.floats(number.grid[0], number.grid[-1]), min_size=1, max_size=3))
    settings = {"reader": reader, name: "/".join(map(repr, weights))}
    settings["theta"] = draw(st.just("tune") | LISTS.map(lambda x: "/".join(map(repr, x))))
    if "long" in sources:
        settings["size"] = "/".join(map(str, draw(COUNTS)))
        settings["scope"] = draw(st.sampled_from(["stream", "document"]))
    if "external" in sources:
        settings["k"] = "/".join(map(str, draw(COUNTS)[: 1 if "long" in sources else None]))
        settings["exact"] = draw(st.sampled_from(["true", "false"]))
    keys = draw(st.permutations(sorted(settings)))
    return sources + ":" + ",".join(f"{key}={settings[key]}" for key in keys)


@given(readings())
def test_every_reading_is_spelled_as_it_reads_back(typed):
    reading = parse_reading(typed)
    assert parse_reading(reading.spelled) == reading
    assert parse_reading(reading.spelled).spelled == reading.spelled


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("external:lambda=0.1", "knn-lm"),
        ("long:size=9,theta=0,lambda=0.1", "unigram-cache"),
        ("long:size=9,theta=0/1,lambda=0.1", "neural-cache"),
        ("long:size=9,reader=joint", "neural-cache (joint)"),
        ("long:size=9,theta=0,reader=joint", "unigram-cache (joint)"),
        ("local:reader=joint", "trime"),
        ("local:lambda=0.1", "local"),
        ("local:lambda=0.1,theta=0", "local"),
        ("long+local:size=9,reader=joint", "trime-long"),
        ("local+long:size=9,lambda=0.1", "local+long"),
        ("external:reader=joint", "knn-lm (joint)"),
        ("external+long:size=9,lambda=0.1", "long+external"),
        ("local+external:reader=joint", "local+external (joint)"),
    ],
)
def test_rows_have_the_names_of_the_papers(typed, name):
    assert reading_name(parse_reading(typed), trained=True) == name


def test_the_readers_own_number_is_lambda_or_alpha():
    assert parse_reading("local:lambda=0.1/0.2").weight == (0.1, 0.2)
    assert parse_reading("local:reader=joint").weight == (0.0,)
    assert parse_reading("local:reader=joint,alpha=tune").weight == "tune"


def test_choices_are_what_is_tuned():
    assert parse_readings(("neural-cache",))[0].choices == ["theta", "lambda", "size"]
    assert parse_reading("local+long:size=1/2,reader=joint,alpha=-1/1").choices == ["alpha", "size"]
    assert parse_reading("long:size=5,theta=0.1,lambda=0.1").choices == []


def test_only_the_first_reading_may_be_joint():
    first = ("local:reader=joint", "external:lambda=0.1")
    assert [r.reader for r in parse_readings(first)] == ["joint", "interpolate"]
    with pytest.raises(
        UsageError, match=r"--memory local:reader=joint: only the first reading may be joint"
    ):
        parse_readings(first[::-1])


def test_none_is_the_plain_model_and_stands_alone():
    assert parse_readings(("none",)) == ()
    with pytest.raises(UsageError, match="stands alone"):
        parse_readings(("none", "knn-lm"))


def test_readings_keep_their_order():
    specs = ("external:k=1,lambda=0.1", "external:k=2,lambda=0.2")
    assert [r.value("k") for r in parse_readings(specs)] == [(1,), (2,)]


def test_a_learned_weight_is_a_choice_beside_the_numbers_it_begins_at():
    reading = parse_reading("external:lambda=learned,k=8,temperature=2")
    assert reading.per_context and reading.choices == ["lambda"]
    assert reading.spelled == "external:temperature=2,lambda=learned,k=8"
    tuned = reading.with_tuned_weight()
    assert not tuned.per_context and tuned.weight == reading.tunable["lambda"].grid


def test_only_the_last_reading_may_learn_its_weight():
    learned, cache = "external:lambda=learned", "long:size=5,lambda=0.2"
    assert parse_readings((cache, learned))[1].per_context
    with pytest.raises(
        UsageError,
        match=r"only the last reading may learn its lambda: put it last, or .*lambda=tune",
    ):
        parse_readings((learned, cache))


@pytest.mark.parametrize("spec", ["external:lambda=learnt", "local:reader=joint,alpha=learned"])
def test_what_is_not_learned_is_refused(spec):
    with pytest.raises(UsageError, match=r"lambda|alpha"):
        parse_reading(spec)
