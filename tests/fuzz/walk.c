/* Inputs for the native header walk, made, walked and checked some hundred thousand times a second. Used by target_walk.py.

   An input is a state of the random generator: it stands for a seed file, what is changed in it, and at which guard page it and the
   records lie. After a walk every record must lie inside the header and every fault inside the file. */

#include <stdint.h>
#include <string.h>

typedef int64_t (*scan_function)(int64_t base, int64_t size, int64_t keys, int64_t tensors, int64_t sizes, int64_t out);

struct run {
    scan_function scan;
    int64_t sizes;                      /* table of block sizes */
    uint8_t *room, *room_end;           /* the file lies here */
    int64_t *out, *out_end;             /* the records lie here */
    const uint8_t *data;                /* seed files, one after the other */
    const int64_t *starts, *places, *place_starts; /* of each file; where its fields lie */
    int64_t seeds, most_keys, most_tensors, key_min, tensor_min, results, record; /* the last two in int64 */
    uint64_t before;                    /* the state of the input under way */
    int64_t tally[10];                  /* refused by its counts, walked, then the walk's codes */
};

static const uint64_t extremes[] = {0, 1, 2, 1 << 8, 1 << 16, 0x7FFFFFFF, 0x80000000, 1ull << 32, 1ull << 47, 1ull << 48,
                                    0x7FFFFFFFFFFFFFFF, 1ull << 63, ~0ull};

static uint64_t draw(uint64_t *state) {
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}

static int64_t below(uint64_t *state, int64_t n) { return (int64_t)((draw(state) >> 11) % (uint64_t)n); }

static int64_t damage(uint64_t *state, uint8_t *work, int64_t n, const int64_t *places, int64_t count) {
    int64_t what = below(state, 9), size = draw(state) >> 20 & 1 ? 4 : 8, at = places[below(state, count)];
    int fits = at + size <= n;
    if (what <= 2 && fits) {
        uint64_t value = extremes[below(state, sizeof extremes / 8)] + (uint64_t)below(state, 3) - 1;
        memcpy(work + at, &value, size);
    } else if (what == 3 && fits) {
        uint64_t value = below(state, 64);
        memcpy(work + at, &value, size);
    } else if (what == 4 && n > 24) {
        work[8 + below(state, n - 8)] ^= 1 << below(state, 8);
    } else if (what == 5 && n > 24) {
        work[8 + below(state, n - 8)] = below(state, 256);
    } else if (what == 6 && n > 25) {
        n = 24 + below(state, n - 24);
    } else if (what == 7 && n > 64) {
        int64_t from = 24 + below(state, n - 60), some = 1 + below(state, 32);
        memmove(work + from, work + from + some, n - from - some);
        n -= some;
    } else if (what == 8 && fits) {
        int64_t other = places[below(state, count)];
        if (other + size <= n)
            memmove(work + at, work + other, size);
    }
    return n;
}

static int inside(int64_t start, int64_t size, int64_t low, int64_t high) { return low <= start && size >= 0 && start <= high - size; }

static int sound(const struct run *r, const int64_t *out, int64_t keys, int64_t tensors, int64_t n) {
    int64_t end = out[0];
    if (end < 24 || end > n)
        return 0;
    for (int64_t i = 0; i < keys + tensors; i++) {
        const int64_t *e = out + r->results + r->record * i;
        if (!inside(e[0], e[1], 24, end))
            return 0;
        if (i < keys) {
            if (!inside(e[3], e[6], 24, end) || e[4] < 0)
                return 0;
        } else {
            int64_t rank = e[2] >> 32, kind = e[2] & 0xFFFFFFFF;
            if (rank < 1 || rank > 4 || kind >= 64 || !inside(e[3], 8 * rank, 24, end))
                return 0;
            if (e[4] < 0 || e[4] > 1ll << 48 || e[5] < 0)
                return 0;
        }
    }
    return 1;
}

/* Walks `count` inputs from `state` on; returns how many went well. */
int64_t walk_many(struct run *r, uint64_t state, int64_t count) {
    uint8_t work[1 << 14];
    for (int64_t done = 0; done < count; done++) {
        r->before = state;
        int64_t s = below(&state, r->seeds), n = r->starts[s + 1] - r->starts[s];
        memcpy(work, r->data + r->starts[s], n);
        for (int64_t k = below(&state, 4); k >= 0; k--)
            n = damage(&state, work, n, r->places + r->place_starts[s], r->place_starts[s + 1] - r->place_starts[s]);
        uint64_t tensors, keys;
        memcpy(&tensors, work + 8, 8);
        memcpy(&keys, work + 16, 8);
        if (tensors > (uint64_t)r->most_tensors || keys > (uint64_t)r->most_keys || (int64_t)tensors * r->tensor_min > n - 24 ||
            (int64_t)keys * r->key_min > n - 24) {
            r->tally[0]++;
            continue;
        }
        int at_end = draw(&state) >> 30 & 1;
        int64_t need = r->results + r->record * (keys + tensors);
        uint8_t *base = at_end ? r->room_end - n : r->room;
        int64_t *out = at_end ? r->out_end - need : r->out;
        memcpy(base, work, n);
        memset(out, 0, 8 * need);
        int64_t code = r->scan((int64_t)base, n, keys, tensors, r->sizes, (int64_t)out);
        if (memcmp(base, work, n)) /* input is read only */
            return done;
        if (code == 0 ? !sound(r, out, keys, tensors, n)
                      : code > 0 || code < -8 || out[2] < 0 || out[2] > n || out[5] < 0 || out[5] > 10 || out[1] > (int64_t)(keys + tensors))
            return done;
        r->tally[1 - code]++;
    }
    return count;
}
