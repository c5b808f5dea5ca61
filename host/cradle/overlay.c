#include "overlay.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "minimal.h"

/* The options that mount(2) takes are a page. */
enum { OPTION_BYTES = 4096 };

/*
 * `volatile`: without it the last unmount of each sandbox syncs the whole volume below it. What must survive a crash of the
 * host is synced by whoever saves it. `uuid=off` spares a write to the upper. The rest is off so that an upper holds plain
 * files, which become layers as they are, and nothing in a layer can point outside of itself.
 */
static const char *const OPTIONS[][2] = {
	{ "xino", "off" }, { "metacopy", "off" }, { "index", "off" }, { "redirect_dir", "nofollow" }, { "uuid", "off" },
};

static int clone_dir(const char *path)
{
	return open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW);
}

/* Splits the two paths after their longest common directory. */
static int split_writable(const struct request *request, struct parts *parts, struct fault *fault)
{
	const char *upper = request->upper_dir, *work = request->work_dir;
	size_t common = 0;

	for (size_t at = 0; upper[at] != 0 && upper[at] == work[at]; at++)
		if (upper[at] == '/')
			common = at + 1;
	parts->upper = upper + common;
	parts->work = work + common;
	if (common >= sizeof parts->writable_dir || *parts->upper == 0 || *parts->work == 0) {
		errno = EINVAL;
		return fault_set(fault, "upper %s and work %s: split", upper, work);
	}
	memcpy(parts->writable_dir, upper, common);
	parts->writable_dir[common] = 0;
	return 0;
}

static int open_writable(const struct request *request, struct parts *parts, struct fault *fault)
{
	struct stat status;

	if (split_writable(request, parts, fault))
		return -1;
	if (lstat(request->upper_dir, &status))
		return fault_set(fault, "upper %s", request->upper_dir);
	/* The id map gives nobody what a host's user owns; better said than found out by what runs in the sandbox. */
	if (!S_ISDIR(status.st_mode) || status.st_uid >= ID_RANGE || status.st_gid >= ID_RANGE) {
		errno = EPERM;
		return fault_set(fault, "upper %s: does not have plain ids", request->upper_dir);
	}
	parts->writable = clone_dir(parts->writable_dir);
	return parts->writable < 0 ? fault_set(fault, "clone %s", parts->writable_dir) : 0;
}

int parts_open(const struct request *request, struct parts *parts, struct fault *fault)
{
	parts->layer_count = 0;
	for (unsigned at = 0; at < request->layer_count; at++) {
		parts->layers[at] = clone_dir(request->layers[at]);
		if (parts->layers[at] < 0)
			return fault_set(fault, "layer %s", request->layers[at]);
		parts->layer_count++;
	}
	return open_writable(request, parts, fault);
}

int parts_shift(const struct parts *parts, int user_ns, struct fault *fault)
{
	struct mount_attr attributes = { .attr_set = MOUNT_ATTR_IDMAP | MOUNT_ATTR_RDONLY, .userns_fd = (unsigned)user_ns };

	for (unsigned at = 0; at < parts->layer_count; at++)
		if (mount_setattr(parts->layers[at], "", AT_EMPTY_PATH, &attributes, sizeof attributes))
			return fault_set(fault, "shift the ids of layer %u", at);
	attributes.attr_set = MOUNT_ATTR_IDMAP;
	if (mount_setattr(parts->writable, "", AT_EMPTY_PATH, &attributes, sizeof attributes))
		return fault_set(fault, "shift the ids of the upper");
	return 0;
}

static int add_fd(int overlay, const char *key, int fd, struct fault *fault)
{
	return fsconfig(overlay, FSCONFIG_SET_FD, key, NULL, fd) ? fault_set(fault, "overlay: %s", key) : 0;
}

static int add_dir(int overlay, const char *key, int writable, const char *name, struct fault *fault)
{
	int fd = openat(writable, name, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	int result;

	if (fd < 0)
		return fault_set(fault, "overlay: open %s", key);
	result = add_fd(overlay, key, fd, fault);
	close(fd);
	return result;
}

/* `lowerdir+` adds below what is there: the uppermost layer comes first. */
static int add_descriptors(int overlay, const struct parts *parts, struct fault *fault)
{
	for (unsigned at = parts->layer_count; at-- > 0;)
		if (add_fd(overlay, "lowerdir+", parts->layers[at], fault))
			return -1;
	if (add_dir(overlay, "upperdir", parts->writable, parts->upper, fault))
		return -1;
	return add_dir(overlay, "workdir", parts->writable, parts->work, fault);
}

static int stage_one(int tree, const char *name, struct fault *fault)
{
	if (mkdir(name, 0700) || move_mount(tree, "", AT_FDCWD, name, MOVE_MOUNT_F_EMPTY_PATH))
		return fault_set(fault, "stage %s", name);
	return 0;
}

/* Attaches every part under a working directory that this process alone sees; layers are named by their number. */
static int stage(const struct parts *parts, struct fault *fault)
{
	char name[12];

	if (unshare(CLONE_NEWNS) || mount("tmpfs", MINIMAL_STAGE, "tmpfs", 0, "mode=0700,size=64k") || chdir(MINIMAL_STAGE))
		return fault_set(fault, "stage: make");
	for (unsigned at = 0; at < parts->layer_count; at++) {
		snprintf(name, sizeof name, "%u", at);
		if (stage_one(parts->layers[at], name, fault))
			return -1;
	}
	return stage_one(parts->writable, "w", fault);
}

static int configure(int overlay, const struct parts *parts, struct fault *fault)
{
	if (add_descriptors(overlay, parts, fault))
		return -1;
	for (size_t at = 0; at < sizeof OPTIONS / sizeof *OPTIONS; at++)
		if (fsconfig(overlay, FSCONFIG_SET_STRING, OPTIONS[at][0], OPTIONS[at][1], 0))
			return fault_set(fault, "overlay: %s=%s", OPTIONS[at][0], OPTIONS[at][1]);
	if (fsconfig(overlay, FSCONFIG_SET_FLAG, "volatile", NULL, 0))
		return fault_set(fault, "overlay: volatile");
	return fsconfig(overlay, FSCONFIG_CMD_CREATE, NULL, NULL, 0) ? fault_set(fault, "overlay: create") : 0;
}

static int mount_descriptors(const struct parts *parts, struct fault *fault)
{
	int overlay = fsopen("overlay", FSOPEN_CLOEXEC), mounted = -1;

	if (overlay < 0)
		return fault_set(fault, "overlay: open");
	if (configure(overlay, parts, fault) == 0) {
		mounted = fsmount(overlay, FSMOUNT_CLOEXEC, MOUNT_ATTR_NODEV);
		if (mounted < 0)
			fault_set(fault, "overlay: mount");
	}
	close(overlay);
	return mounted;
}

/* Adds to the text of the options; says so when there is no more room. */
__attribute__((format(printf, 2, 3))) static bool add_option(char options[OPTION_BYTES], const char *format, ...)
{
	size_t used = strlen(options);
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vsnprintf(options + used, OPTION_BYTES - used, format, arguments);
	va_end(arguments);
	return length >= 0 && (size_t)length < OPTION_BYTES - used;
}

/* The options of mount(2) for the staged parts; those of fsconfig(2) have 256 bytes each, which is too short for many layers. */
static int write_options(const struct parts *parts, char options[OPTION_BYTES], struct fault *fault)
{
	bool fits = add_option(options, "upperdir=w/%s,workdir=w/%s,volatile", parts->upper, parts->work);

	if (strpbrk(parts->upper, ",:\\") != NULL || strpbrk(parts->work, ",:\\") != NULL) {
		errno = EINVAL;
		return fault_set(fault, "overlay: upper or work has a character that this kernel takes for its own");
	}
	for (size_t at = 0; at < sizeof OPTIONS / sizeof *OPTIONS; at++)
		fits = fits && add_option(options, ",%s=%s", OPTIONS[at][0], OPTIONS[at][1]);
	for (unsigned at = parts->layer_count; at-- > 0;)
		fits = fits && add_option(options, "%s%u", at + 1 == parts->layer_count ? ",lowerdir=" : ":", at);
	if (fits)
		return 0;
	errno = E2BIG;
	return fault_set(fault, "overlay: options");
}

static int mount_paths(const struct parts *parts, struct fault *fault)
{
	char options[OPTION_BYTES] = "";
	int mounted;

	if (write_options(parts, options, fault) || stage(parts, fault))
		return -1;
	if (mkdir("m", 0700) || mount("overlay", "m", "overlay", MS_NODEV, options))
		return fault_set(fault, "overlay: mount");
	mounted = clone_dir("m");
	return mounted < 0 ? fault_set(fault, "overlay: detach") : mounted;
}

/* A work directory that cannot be filled, on a full volume say, gives a read-only overlay instead of an error. */
static int check_writable(int mounted, struct fault *fault)
{
	struct statvfs status;

	if (fstatvfs(mounted, &status) == 0) {
		if ((status.f_flag & ST_RDONLY) == 0)
			return 0;
		errno = EROFS;
	}
	fault_set(fault, "overlay: make it writable");
	close(mounted);
	return -1;
}

int overlay_make(enum overlay_mode mode, const struct parts *parts, struct fault *fault)
{
	int mounted = mode == OVERLAY_FD ? mount_descriptors(parts, fault) : mount_paths(parts, fault);

	return mounted < 0 || check_writable(mounted, fault) ? -1 : mounted;
}

static int scratch_tmpfs(void)
{
	int context = fsopen("tmpfs", FSOPEN_CLOEXEC);
	int mounted = -1;

	if (context >= 0 && fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
		mounted = fsmount(context, FSMOUNT_CLOEXEC, 0);
	if (context >= 0)
		close(context);
	return mounted;
}

enum overlay_mode overlay_probe(void)
{
	struct fault ignored;
	struct parts parts = { .layer_count = 1, .upper = "u", .work = "w" };
	int overlay = -1;

	parts.layers[0] = scratch_tmpfs();
	parts.writable = scratch_tmpfs();
	if (parts.layers[0] >= 0 && parts.writable >= 0 && mkdirat(parts.writable, "u", 0700) == 0 &&
	    mkdirat(parts.writable, "w", 0700) == 0)
		overlay = overlay_make(OVERLAY_FD, &parts, &ignored);
	if (overlay >= 0)
		close(overlay);
	if (parts.layers[0] >= 0)
		close(parts.layers[0]);
	if (parts.writable >= 0)
		close(parts.writable);
	return overlay >= 0 ? OVERLAY_FD : OVERLAY_PATHS;
}
