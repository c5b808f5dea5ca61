/* /proc/cpuinfo, /proc/stat and /sys/devices/system/cpu/online. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "view.h"

static bool has_processor(const struct sandbox *sandbox, unsigned long number)
{
	for (unsigned at = 0; at < sandbox->count; at++)
		if (sandbox->processors[at] == number)
			return true;
	return false;
}

/* True: the line says how many processors go together, which here is no more than there are. */
static bool add_capped(struct text *text, const char *line, size_t length, unsigned count)
{
	static const char *const COUNTS[] = { "siblings", "cpu cores" };
	const char *colon = memchr(line, ':', length);

	for (size_t at = 0; at < sizeof COUNTS / sizeof *COUNTS; at++) {
		if (colon == NULL || strncmp(line, COUNTS[at], strlen(COUNTS[at])) != 0 || strtoul(colon + 1, NULL, 10) <= count)
			continue;
		text_add(text, "%.*s: %u\n", (int)(colon - line), line, count);
		return true;
	}
	return false;
}

static void add_paragraph(struct text *text, const char *at, const char *end, unsigned count)
{
	while (at < end) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));
		size_t length = (size_t)((newline == NULL ? end : newline + 1) - at);

		if (!add_capped(text, at, length, count))
			text_add_bytes(text, at, length);
		at += length;
	}
}

/* The machine's file has a paragraph for each processor, which begins with its number. */
void make_cpuinfo(const struct node *node, const struct sandbox *sandbox, struct text *text)
{
	const char *const title = "processor";

	for (const char *at = node->cpuinfo; *at != 0;) {
		const char *end = strstr(at, "\n\n");
		const char *next = end == NULL ? at + strlen(at) : end + 2;
		const char *colon = strchr(at, ':');
		bool is_processor = strncmp(at, title, strlen(title)) == 0 && colon != NULL;

		/* Some architectures end with a paragraph about the machine. */
		if (!is_processor || has_processor(sandbox, strtoul(colon + 1, NULL, 10)))
			add_paragraph(text, at, next, sandbox->count);
		at = next;
	}
}

void make_online(const struct node *node, const struct sandbox *sandbox, struct text *text)
{
	(void)node;
	for (unsigned first = 0; first < sandbox->count;) {
		unsigned last = first;

		while (last + 1 < sandbox->count && sandbox->processors[last + 1] == sandbox->processors[last] + 1)
			last++;
		text_add(text, "%s%u", first == 0 ? "" : ",", sandbox->processors[first]);
		if (last > first)
			text_add(text, "-%u", sandbox->processors[last]);
		first = last + 1;
	}
	text_add(text, "\n");
}

static void add_times(struct text *text, uint64_t user_us, uint64_t system_us, uint64_t idle_us)
{
	uint64_t tick_us = 1000000 / (uint64_t)sysconf(_SC_CLK_TCK);

	text_add(text, "%llu 0 %llu %llu 0 0 0 0 0 0\n", (unsigned long long)(user_us / tick_us),
		 (unsigned long long)(system_us / tick_us), (unsigned long long)(idle_us / tick_us));
}

static uint64_t began_at(const struct sandbox *sandbox)
{
	uint64_t age_us = boot_us() - sandbox->started_us;

	return (uint64_t)time(NULL) - age_us / 1000000;
}

/* What was used is spread evenly: which processor did it is the scheduler's business, and changes. */
void make_stat(const struct node *node, const struct sandbox *sandbox, struct text *text)
{
	struct times used = cpu_times(node, sandbox->id);
	uint64_t all_us = (boot_us() - sandbox->started_us) * sandbox->count, used_us = used.user_us + used.system_us;
	uint64_t idle_us = all_us > used_us ? all_us - used_us : 0;

	text_add(text, "cpu  ");
	add_times(text, used.user_us, used.system_us, idle_us);
	for (unsigned at = 0; at < sandbox->count; at++) {
		text_add(text, "cpu%u ", sandbox->processors[at]);
		add_times(text, used.user_us / sandbox->count, used.system_us / sandbox->count, idle_us / sandbox->count);
	}
	/* Of what the kernel counts for the machine alone nothing is told. */
	text_add(text, "intr 0\nctxt 0\nbtime %llu\nprocesses 0\nprocs_running 1\nprocs_blocked 0\n",
		 (unsigned long long)began_at(sandbox));
	text_add(text, "softirq 0 0 0 0 0 0 0 0 0 0 0\n");
}
