/* /proc/meminfo, /proc/swaps, /proc/vmstat and /proc/diskstats. */
#include <unistd.h>

#include "view.h"

struct memory {
	uint64_t total;
	uint64_t used;
	uint64_t swap_total;
	uint64_t swap_used;
	struct keyed stat;
	bool is_v1;
};

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t beyond(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static void read_v1(const struct node_tree *tree, const char *id, struct memory *memory)
{
	uint64_t limit = counter(tree, id, "memory.limit_in_bytes", UINT64_MAX);
	/* Both count memory and swap together. */
	uint64_t both_limit = counter(tree, id, "memory.memsw.limit_in_bytes", limit);

	memory->total = limit;
	memory->used = counter(tree, id, "memory.usage_in_bytes", 0);
	memory->swap_total = beyond(both_limit, limit);
	memory->swap_used = beyond(counter(tree, id, "memory.memsw.usage_in_bytes", memory->used), memory->used);
}

static void read_v2(const struct node_tree *tree, const char *id, struct memory *memory)
{
	memory->total = counter(tree, id, "memory.max", UINT64_MAX);
	memory->used = counter(tree, id, "memory.current", 0);
	memory->swap_total = counter(tree, id, "memory.swap.max", UINT64_MAX);
	memory->swap_used = counter(tree, id, "memory.swap.current", 0);
}

static void read_memory(const struct node *node, const struct sandbox *sandbox, struct memory *memory)
{
	const struct node_tree *tree = &node->trees[TREE_MEMORY];

	memory->is_v1 = tree->version == 1;
	(memory->is_v1 ? read_v1 : read_v2)(tree, sandbox->id, memory);
	/* No sandbox has more than the machine. */
	memory->total = least(memory->total, node->memory_bytes);
	memory->used = least(memory->used, memory->total);
	memory->swap_total = least(memory->swap_total, node->swap_bytes);
	memory->swap_used = least(memory->swap_used, memory->swap_total);
	read_keyed(tree, sandbox->id, "memory.stat", &memory->stat);
}

static uint64_t stat_of(const struct memory *memory, const char *v1, const char *v2)
{
	return keyed_value(memory->stat.text, memory->is_v1 ? v1 : v2);
}

static void add_kib(struct text *text, const char *name, uint64_t bytes)
{
	text_add(text, "%-16s%8llu kB\n", name, (unsigned long long)(bytes / 1024));
}

static void add_lists(struct text *text, const struct memory *m)
{
	uint64_t active_anon = stat_of(m, "total_active_anon", "active_anon");
	uint64_t inactive_anon = stat_of(m, "total_inactive_anon", "inactive_anon");
	uint64_t active_file = stat_of(m, "total_active_file", "active_file");
	uint64_t inactive_file = stat_of(m, "total_inactive_file", "inactive_file");

	add_kib(text, "Active:", active_anon + active_file);
	add_kib(text, "Inactive:", inactive_anon + inactive_file);
	add_kib(text, "Active(anon):", active_anon);
	add_kib(text, "Inactive(anon):", inactive_anon);
	add_kib(text, "Active(file):", active_file);
	add_kib(text, "Inactive(file):", inactive_file);
	add_kib(text, "Unevictable:", stat_of(m, "total_unevictable", "unevictable"));
	add_kib(text, "Mlocked:", 0);
}

void make_meminfo(const struct node *node, const struct sandbox *sandbox, struct text *text)
{
	struct memory m;
	uint64_t free, cached, files, reclaimable, unreclaimable;

	read_memory(node, sandbox, &m);
	free = m.total - m.used;
	cached = stat_of(&m, "total_cache", "file");
	files = stat_of(&m, "total_active_file", "active_file") + stat_of(&m, "total_inactive_file", "inactive_file");
	reclaimable = keyed_value(m.stat.text, "slab_reclaimable");
	unreclaimable = keyed_value(m.stat.text, "slab_unreclaimable");
	add_kib(text, "MemTotal:", m.total);
	add_kib(text, "MemFree:", free);
	add_kib(text, "MemAvailable:", least(free + files + reclaimable, m.total));
	add_kib(text, "Buffers:", 0);
	add_kib(text, "Cached:", cached);
	add_kib(text, "SwapCached:", 0);
	add_lists(text, &m);
	add_kib(text, "SwapTotal:", m.swap_total);
	add_kib(text, "SwapFree:", m.swap_total - m.swap_used);
	add_kib(text, "Dirty:", stat_of(&m, "total_dirty", "file_dirty"));
	add_kib(text, "Writeback:", stat_of(&m, "total_writeback", "file_writeback"));
	add_kib(text, "AnonPages:", stat_of(&m, "total_rss", "anon"));
	add_kib(text, "Mapped:", stat_of(&m, "total_mapped_file", "file_mapped"));
	add_kib(text, "Shmem:", stat_of(&m, "total_shmem", "shmem"));
	add_kib(text, "KReclaimable:", reclaimable);
	add_kib(text, "Slab:", reclaimable + unreclaimable);
	add_kib(text, "SReclaimable:", reclaimable);
	add_kib(text, "SUnreclaim:", unreclaimable);
	add_kib(text, "KernelStack:", keyed_value(m.stat.text, "kernel_stack"));
	add_kib(text, "PageTables:", keyed_value(m.stat.text, "pagetables"));
	add_kib(text, "CommitLimit:", m.total + m.swap_total);
	add_kib(text, "Committed_AS:", m.used + m.swap_used);
}

void make_swaps(const struct node *node, const struct sandbox *sandbox, struct text *text)
{
	struct memory m;

	read_memory(node, sandbox, &m);
	text_add(text, "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n");
	if (m.swap_total > 0)
		text_add(text, "%-40s%-16s%llu\t\t%llu\t\t-2\n", "none", "virtual", (unsigned long long)(m.swap_total / 1024),
			 (unsigned long long)(m.swap_used / 1024));
}

/* Counts of pages, then of events. What is not here the kernel counts for the whole machine alone. */
static const struct {
	const char *name;
	const char *v1;
	const char *v2;
	bool is_event;
} VMSTAT[] = {
	{ "nr_inactive_anon", "total_inactive_anon", "inactive_anon", false },
	{ "nr_active_anon", "total_active_anon", "active_anon", false },
	{ "nr_inactive_file", "total_inactive_file", "inactive_file", false },
	{ "nr_active_file", "total_active_file", "active_file", false },
	{ "nr_unevictable", "total_unevictable", "unevictable", false },
	{ "nr_anon_pages", "total_rss", "anon", false },
	{ "nr_mapped", "total_mapped_file", "file_mapped", false },
	{ "nr_file_pages", "total_cache", "file", false },
	{ "nr_dirty", "total_dirty", "file_dirty", false },
	{ "nr_writeback", "total_writeback", "file_writeback", false },
	{ "nr_shmem", "total_shmem", "shmem", false },
	{ "pgfault", "total_pgfault", "pgfault", true },
	{ "pgmajfault", "total_pgmajfault", "pgmajfault", true },
};

void make_vmstat(const struct node *node, const struct sandbox *sandbox, struct text *text)
{
	struct memory m;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	read_memory(node, sandbox, &m);
	text_add(text, "nr_free_pages %llu\n", (unsigned long long)((m.total - m.used) / page));
	for (size_t at = 0; at < sizeof VMSTAT / sizeof *VMSTAT; at++) {
		uint64_t value = stat_of(&m, VMSTAT[at].v1, VMSTAT[at].v2);

		text_add(text, "%s %llu\n", VMSTAT[at].name, (unsigned long long)(VMSTAT[at].is_event ? value : value / page));
	}
	text_add(text, "pgpgin 0\npgpgout 0\npswpin 0\npswpout 0\n");
}

/* A sandbox has no disks: its files lie on those of the machine. */
void make_diskstats(const struct node *node, const struct sandbox *sandbox, struct text *text)
{
	(void)node;
	(void)sandbox;
	(void)text;
}
