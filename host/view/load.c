/* /proc/uptime and /proc/loadavg. */
#include <math.h>
#include <string.h>

#include "view.h"

enum {
	/* Sandboxes whose load is remembered: those that ask. A collision forgets one, which then begins anew. */
	LOADS = 4096,
	/* Time between two looks that is long enough to tell a load. */
	LEAST_US = 1000000,
};

/* What the load averages of one sandbox were when it last looked. */
struct load {
	char id[MAX_ID];
	uint64_t at_us;
	uint64_t used_us;
	double averages[3];
};

static const double MINUTES[3] = { 1, 5, 15 };

static struct load loads[LOADS];

void make_uptime(const struct node *node, const struct sandbox *sandbox, struct text *text)
{
	struct times used = cpu_times(node, sandbox->id);
	uint64_t age_us = boot_us() - sandbox->started_us;
	double idle_us = (double)age_us * sandbox->count - (double)(used.user_us + used.system_us);

	text_add(text, "%.2f %.2f\n", (double)age_us / 1e6, idle_us > 0 ? idle_us / 1e6 : 0);
}

static unsigned slot_of(const char *id)
{
	uint32_t hash = 2166136261u;

	for (; *id != 0; id++)
		hash = (hash ^ (uint8_t)*id) * 16777619u;
	return hash % LOADS;
}

/*
 * The kernel's own averages are of processes that run or want to, sampled every five seconds. These are of processors kept busy,
 * worked out when somebody looks: sandboxes that nobody looks at cost nothing.
 */
static struct load *look(const struct node *node, const struct sandbox *sandbox)
{
	struct load *load = &loads[slot_of(sandbox->id)];
	struct times used = cpu_times(node, sandbox->id);
	uint64_t now_us = boot_us(), used_us = used.user_us + used.system_us;

	if (strcmp(load->id, sandbox->id) != 0) {
		memset(load, 0, sizeof *load);
		strcpy(load->id, sandbox->id);
		load->at_us = sandbox->started_us;
	}
	if (now_us > load->at_us + LEAST_US && used_us >= load->used_us) {
		double passed_us = (double)(now_us - load->at_us);
		double busy = (double)(used_us - load->used_us) / passed_us;

		for (int at = 0; at < 3; at++) {
			double kept = exp(-passed_us / (MINUTES[at] * 60e6));

			load->averages[at] = load->averages[at] * kept + busy * (1 - kept);
		}
		load->at_us = now_us;
		load->used_us = used_us;
	}
	return load;
}

void make_loadavg(const struct node *node, const struct sandbox *sandbox, struct text *text)
{
	const struct load *load = look(node, sandbox);
	/* The spawner is none of the sandbox's processes; whoever reads runs. */
	uint64_t pids = counter(&node->trees[TREE_PIDS], sandbox->id, "pids.current", 2) - 1;

	text_add(text, "%.2f %.2f %.2f 1/%llu %llu\n", load->averages[0], load->averages[1], load->averages[2],
		 (unsigned long long)pids, (unsigned long long)pids);
}
