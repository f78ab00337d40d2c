import pytest

from stages.errors import UsageError
from stages.memory.spec import parse_reading, parse_readings


@pytest.mark.parametrize(
    ("typed", "spelled"),
    [
        ("external:k=1024,lambda=0.25", "external:lambda=0.25,k=1024"),
        ("external:lambda=.10/0.2/0.3,temperature=tune", "external:temperature=tune,lambda=0.1/0.2/0.3"),
        ("external:lambda=tune,reader=interpolate,exact=false", "external:lambda=tune"),
        ("external:theta=0,lambda=0,exact=true", "external:theta=0,lambda=0,exact=true"),
        ("knn-lm", "external:temperature=tune,lambda=tune"),
    ],
)
def test_a_reading_has_one_spelling_and_reads_itself_back(typed, spelled):
    reading = parse_reading(typed)
    assert reading.spelled == spelled
    assert parse_reading(spelled) == reading


def test_values_have_the_types_of_the_contract():
    reading = parse_reading("external:k=8/16,lambda=0.25,temperature=2,similarity=dot,key=hidden")
    assert (reading.k, reading.weight, reading.temperature) == ((8, 16), (0.25,), (2.0,))
    assert (reading.similarity, reading.key, reading.exact) == ("dot", "hidden", False)


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("external:lamda=0.2", "unknown key 'lamda'; did you mean 'lambda'"),
        ("extrenal:lambda=0.2", "no source is called 'extrenal'; did you mean 'external'"),
        ("knn-ml", "did you mean 'knn-lm'"),
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
        ("external:lambda=0.1,size=3", "'size' belongs to 'long' alone"),
        ("external+external:lambda=0.1", "named twice"),
        ("none:k=3", "no source is called 'none'"),
    ],
)
def test_what_is_wrong_is_said(typed, words):
    with pytest.raises(UsageError, match=words) as error:
        parse_reading(typed)
    assert typed in str(error.value)


@pytest.mark.parametrize(
    ("typed", "missing"),
    [
        ("neural-cache", "source 'long'"),
        ("trime", "source 'local'"),
        ("local+external:lambda=0.1", "source 'local'"),
        ("external:reader=joint", "reader 'joint'"),
    ],
)
def test_what_this_version_lacks_is_said_honestly(typed, missing):
    with pytest.raises(UsageError, match=f"does not have the {missing} yet; it has: "):
        parse_reading(typed)


def test_none_is_the_plain_model_and_stands_alone():
    assert parse_readings(("none",)) == ()
    with pytest.raises(UsageError, match="stands alone"):
        parse_readings(("none", "knn-lm"))


def test_readings_keep_their_order():
    specs = ("external:k=1,lambda=0.1", "external:k=2,lambda=0.2")
    assert [r.k for r in parse_readings(specs)] == [(1,), (2,)]
