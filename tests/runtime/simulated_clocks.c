/* simulated_clocks.c: a simulated chip in place of FWR_REG, with flags that follow their enable
 * bits.
 *
 * The test defines RULES and FIELDS: a flag is set while all its enable bits are set; a field
 * mirrors another. Without an argument, oscillators never start. WATCHED is read when the clock
 * source changes: the flash must have its wait states by then.
 */
#include <stdint.h>
#include <stdio.h>

#define PLACES 64

struct rule {
    uint32_t on;
    uint32_t on_mask;
    uint32_t flag;
    uint32_t flag_mask;
};

/* The bits of `from`, shifted by `up`, become bits of `to`; if `up` is 32, the bit that they
 * number. */
struct field {
    uint32_t from;
    uint32_t mask;
    uint32_t to;
    uint32_t up;
};

static const struct rule rules[] = {RULES{0, 0, 0, 0}};
static const struct field fields[] = {FIELDS{0, 0, 0, 0}};
static const uint32_t shown[] = {SHOWN};

static struct {
    uint32_t address;
    volatile uint32_t word;
} places[PLACES];

static int alive;
static uint32_t accesses;
static uint32_t watched_at_switch;

void fwr_clock_init(void);
int fwr_clock_is_raised(void);
volatile uint32_t *fwr_test_register(uint32_t address);

static volatile uint32_t *place(uint32_t address)
{
    uint32_t i = 0;

    while (places[i].address != address && places[i].address != 0) {
        i++;
    }
    places[i].address = address;
    return &places[i].word;
}

static void follow(void)
{
    for (uint32_t i = 0; rules[i].on != 0 && alive; i++) {
        if ((*place(rules[i].on) & rules[i].on_mask) == rules[i].on_mask) {
            *place(rules[i].flag) |= rules[i].flag_mask;
        }
    }
    for (uint32_t i = 0; fields[i].from != 0; i++) {
        uint32_t bits = *place(fields[i].from) & fields[i].mask;
        volatile uint32_t *to = place(fields[i].to);
        if (fields[i].up == 32u) {
            *to = 1u << bits;
        } else {
            *to = (*to & ~(fields[i].mask << fields[i].up)) | bits << fields[i].up;
        }
    }
}

volatile uint32_t *fwr_test_register(uint32_t address)
{
    int was_raised = 0;

    if (accesses++ != 0) {
        was_raised = watched_at_switch != 0;
        follow();
        if (!was_raised && (*place(SWITCH) & SWITCH_MASK) == SWITCH_MASK) {
            watched_at_switch = *place(WATCHED) + 1u;
        }
    }
    return place(address);
}

int main(int argc, char **argv)
{
    (void)argv;
    alive = argc > 1;
    fwr_clock_init();
    int raised = fwr_clock_is_raised();
    printf("%d %u\n", raised, watched_at_switch - 1u);
    for (uint32_t i = 0; i < sizeof(shown) / sizeof(shown[0]); i++) {
        printf("%08x %08x\n", shown[i], *place(shown[i]));
    }
    return accesses < 1000000u ? 0 : 1;
}
