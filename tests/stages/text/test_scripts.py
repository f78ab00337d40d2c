import pytest

from stages.text.survey import lacks_words


@pytest.mark.parametrize(
    "text",
    [
        "我们在一起的时候。\n他说：“好吧。”\n",
        "吾輩は猫である。名前はまだ無い。\n",
        "ฉันชอบอ่านหนังสือมาก\n",
        "ACGT" * 1000,
        "我们在一起 and 他们也在一起\n",
    ],
)
def test_text_without_spaces_lacks_words(text: str) -> None:
    assert lacks_words([text, text])


@pytest.mark.parametrize(
    "text",
    [
        "It was the best of times.\n",
        "나는 고양이로소이다 이름은 아직 없다\n",
        "epäjärjestelmällisyys on pitkä\n",
        "Быть или не быть\n",
        "我们 在 一起 。\n他 说 ： “ 好吧 。 ”\n",
    ],
)
def test_text_with_spaces_has_them(text: str) -> None:
    assert not lacks_words([text])
