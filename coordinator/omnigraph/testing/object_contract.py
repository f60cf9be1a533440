"""What every object store must do, as tests: subclass, give the fixtures, inherit the suite."""

import pickle
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from omnigraph.errors import InvalidNameError, ObjectExistsError, ObjectNotFoundError
from omnigraph.storage.objects import ObjectInfo, ObjectStore

__all__ = ["BAD_KEYS", "ObjectStoreContract"]

MANY = 1_205  # more than one page of an S3 listing
WRITERS = 16

ODD_KEYS = (
    "odd/é/ü",
    "odd/日本語",
    "odd/🎉",
    "odd/n\u0301",
    "odd/a b",
    "odd/ edges ",
    "odd/a%20b",
    "odd/%2e%2e",
    "odd/a?b&c=d+e",
    "odd/x#y",
    'odd/{a}~^"`|[]<>*',
    "odd/a:b",
    "odd/.hidden",
    "odd/" + "long" * 60,
)
BAD_KEYS = (
    "",
    "/",
    "/absolute",
    "closing/",
    "a//b",
    ".",
    "./a",
    "a/./b",
    "..",
    "../a",
    "a/../../b",
    "a\\b",
    "a\nb",
    "a\x00b",
    "a\x7fb",
    "a\ud800b",
    "a#1",
    "a#12/b",
    "x" * 241,
    "é" * 121,
    "/".join(["seg"] * 250),
)


class ObjectStoreContract:
    """Give a fixture ``store`` (empty), and ``other_store`` whose root lies beside it under a longer name."""

    def test_what_was_put_is_got(self, store: ObjectStore) -> None:
        """A body comes back as it was stored."""
        store.put("folder/object", b"body")
        assert store.get("folder/object") == b"body"

    def test_a_put_replaces_what_was_there(self, store: ObjectStore) -> None:
        """The last body wins, also when it is shorter."""
        store.put("a", b"a long first body")
        store.put("a", b"short")
        assert store.get("a") == b"short"
        assert store.head("a").size == 5

    @pytest.mark.parametrize("body", [b"", bytes(range(256)), b"\x00", b"#1\r\n\r\n", "é€🎉".encode()])
    def test_any_bytes_come_back_unchanged(self, store: ObjectStore, body: bytes) -> None:
        """Empty and binary bodies are bodies."""
        store.put("body", body)
        store.put_if_absent("new/body", body)
        assert store.get("body") == body == store.get("new/body")
        assert store.head("body").size == len(body)

    def test_five_megabytes_come_back_unchanged(self, store: ObjectStore) -> None:
        """Bodies beyond the size at which clients split uploads stay whole, create-only or not."""
        body = bytes(range(256)) * 20_480
        store.put("big", body)
        store.put_if_absent("big-new", body)
        assert store.get("big") == body == store.get("big-new")
        with pytest.raises(ObjectExistsError):
            store.put_if_absent("big", body)

    def test_put_if_absent_refuses_a_taken_key_and_keeps_the_first_body(self, store: ObjectStore) -> None:
        """Create-only means create only, also against a plain put."""
        store.put_if_absent("a/b", b"first")
        with pytest.raises(ObjectExistsError) as refused:
            store.put_if_absent("a/b", b"second")
        assert refused.value.facts["key"] == "a/b"
        assert store.get("a/b") == b"first"

    def test_put_if_absent_succeeds_again_after_a_delete(self, store: ObjectStore) -> None:
        """A deleted key is free."""
        store.put_if_absent("a", b"1")
        store.delete(["a"])
        store.put_if_absent("a", b"2")
        assert store.get("a") == b"2"

    def test_of_many_simultaneous_creators_exactly_one_wins(self, store: ObjectStore) -> None:
        """Sixteen threads, one key: one winner, and its body is stored."""
        start = threading.Barrier(WRITERS)

        def contend(number: int) -> bool:
            start.wait()
            try:
                store.put_if_absent("contested", str(number).encode())
            except ObjectExistsError:
                return False
            return True

        with ThreadPoolExecutor(WRITERS) as pool:
            won = list(pool.map(contend, range(WRITERS)))
        assert won.count(True) == 1
        assert store.get("contested") == str(won.index(True)).encode()

    def test_readers_see_whole_bodies_while_a_writer_replaces_them(self, store: ObjectStore) -> None:
        """No reader ever sees half of a body."""
        bodies = [bytes([number]) * 60_000 for number in range(8)]
        store.put("changing", bodies[0])
        done = threading.Event()

        def read() -> int:
            seen = 0
            while not done.is_set() or seen == 0:
                assert store.get("changing") in bodies
                seen += 1
            return seen

        with ThreadPoolExecutor(2) as pool:
            readers = [pool.submit(read) for _ in range(2)]
            try:
                for _ in range(4):
                    for body in bodies:
                        store.put("changing", body)
            finally:
                done.set()
            assert all(reader.result() for reader in readers)

    def test_an_empty_store_lists_nothing(self, store: ObjectStore) -> None:
        """Neither the root nor a missing folder is an error."""
        assert list(store.list()) == []
        assert list(store.list("no/such/folder")) == []

    def test_a_listing_is_recursive_with_keys_relative_to_the_root(self, store: ObjectStore) -> None:
        """Depth does not matter, and a closing slash of the prefix neither."""
        self._fill(store, ["top", "a/one", "a/deep/er/two"])
        assert _keys(store.list()) == ["a/deep/er/two", "a/one", "top"]
        assert _keys(store.list("a")) == _keys(store.list("a/")) == ["a/deep/er/two", "a/one"]
        assert _keys(store.list("a/deep")) == ["a/deep/er/two"]

    def test_a_prefix_is_a_folder_and_not_the_beginning_of_a_name(self, store: ObjectStore) -> None:
        """Siblings whose names begin alike stay out."""
        self._fill(store, ["a/x", "ab/x", "a.b/x", "a-b", "z/a/x"])
        assert _keys(store.list("a")) == ["a/x"]

    def test_a_prefix_that_names_an_object_lists_nothing(self, store: ObjectStore) -> None:
        """An object is not inside itself."""
        store.put("a/object", b"")
        assert list(store.list("a/object")) == []

    def test_a_listing_of_more_than_a_page_is_complete(self, store: ObjectStore) -> None:
        """Every key once, and all of them can be deleted by the listing."""
        keys = [f"many/{number:05}" for number in range(MANY)]
        self._fill(store, keys)
        assert _keys(store.list("many")) == keys
        store.delete(info.key for info in store.list("many"))
        assert list(store.list("many")) == []

    def test_odd_but_valid_keys_keep_their_exact_spelling(self, store: ObjectStore) -> None:
        """Nothing is escaped, normalised or trimmed on the way."""
        for number, key in enumerate(ODD_KEYS):
            store.put(key, str(number).encode())
        assert _keys(store.list("odd")) == sorted(ODD_KEYS)
        assert [store.get(key) for key in ODD_KEYS] == [str(number).encode() for number in range(len(ODD_KEYS))]
        store.delete(ODD_KEYS)
        assert list(store.list()) == []

    def test_head_and_list_tell_size_and_time_in_utc(self, store: ObjectStore) -> None:
        """Both agree, and the time is aware and recent."""
        store.put("a/b", b"12345")
        head = store.head("a/b")
        (listed,) = store.list("a")
        assert (head.key, head.size) == ("a/b", 5) == (listed.key, listed.size)
        for told in (head.modified, listed.modified):
            assert told.tzinfo is not None and told.utcoffset() == timedelta(0)
            assert abs(datetime.now(UTC) - told) < timedelta(minutes=5)
        assert abs(head.modified - listed.modified) < timedelta(seconds=2)

    def test_a_replaced_object_is_not_older(self, store: ObjectStore) -> None:
        """The time is that of the last write."""
        store.put("a", b"1")
        before = store.head("a").modified
        store.put("a", b"2")
        assert store.head("a").modified >= before

    def test_a_missing_object_is_a_typed_error(self, store: ObjectStore) -> None:
        """Absence, and only absence, is ObjectNotFoundError, also for a name that is a folder."""
        store.put("folder/object", b"")
        for key in ("missing", "folder", "folder/missing", "no/such/folder/object"):
            with pytest.raises(ObjectNotFoundError) as missing:
                store.get(key)
            assert missing.value.facts["key"] == key
            with pytest.raises(ObjectNotFoundError):
                store.head(key)

    def test_deleting_is_idempotent(self, store: ObjectStore) -> None:
        """Missing keys do not stop the others from going."""
        self._fill(store, ["a/1", "a/2", "keep"])
        store.delete(["a/0", "a/1", "no/such", "a/2"])
        store.delete(["a/1", "a/2"])
        store.delete([])
        assert _keys(store.list()) == ["keep"]

    def test_a_single_string_is_not_a_list_of_keys(self, store: ObjectStore) -> None:
        """The classic slip would delete one-letter keys."""
        store.put("a", b"")
        with pytest.raises(InvalidNameError):
            store.delete("a")
        assert store.get("a") == b""

    @pytest.mark.parametrize("key", BAD_KEYS, ids=lambda key: ascii(key[:12]))
    def test_an_invalid_key_is_refused_and_nothing_happens(self, store: ObjectStore, key: str) -> None:
        """Keys never leave the root, and mean the same on every store."""
        store.put("a", b"stays")
        with pytest.raises(InvalidNameError):
            store.put(key, b"x")
        with pytest.raises(InvalidNameError):
            store.put_if_absent(key, b"x")
        with pytest.raises(InvalidNameError):
            store.get(key)
        with pytest.raises(InvalidNameError):
            store.head(key)
        with pytest.raises(InvalidNameError):
            store.delete([key])
        if key not in ("", "closing/"):
            with pytest.raises(InvalidNameError):
                store.list(key)  # at the call, not at the first entry
        assert _keys(store.list()) == ["a"]

    def test_two_roots_do_not_see_each_other(self, store: ObjectStore, other_store: ObjectStore) -> None:
        """Not even when one root's name begins with the other's."""
        store.put("a/same", b"mine")
        other_store.put_if_absent("a/same", b"theirs")
        other_store.put("only/theirs", b"")
        assert _keys(store.list()) == ["a/same"]
        assert _keys(other_store.list()) == ["a/same", "only/theirs"]
        store.delete(["a/same", "only/theirs"])
        assert other_store.get("a/same") == b"theirs"
        assert other_store.head("only/theirs").size == 0

    def test_its_errors_survive_pickling(self, store: ObjectStore) -> None:
        """A worker's error arrives with its text, type and facts."""
        store.put("a", b"")
        with pytest.raises(ObjectExistsError) as exists:
            store.put_if_absent("a", b"")
        with pytest.raises(ObjectNotFoundError) as missing:
            store.get("b")
        for error in (exists.value, missing.value):
            copy = pickle.loads(pickle.dumps(error))
            assert (type(copy), str(copy), copy.facts) == (type(error), str(error), error.facts)

    def _fill(self, store: ObjectStore, keys: Iterable[str]) -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: store.put(key, b"x"), keys))


def _keys(found: Iterable[ObjectInfo]) -> list[str]:
    return sorted(info.key for info in found)
