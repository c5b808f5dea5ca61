import { flag, integer, mebibytes } from "#core/setting-kinds.ts";
import type { SettingsOf } from "#core/settings.ts";
import { ID_LIMIT, IDS_PER_SANDBOX } from "#host/id-ranges.ts";

/** Each is kept by a worker of the launcher, which has 32. */
const MAX_BLANKS = 24;

/**
 * What an operator may set of this backend. User ids of sandboxes start far above those that Debian and Ubuntu hand to
 * people (1,000 up) and to their rootless containers (/etc/subuid, 100,000 up), with room for 30,719 sandboxes.
 */
export const CONTAINER_SETTINGS = {
  firstUid: integer("134217728", "First user id of the host that sandboxes use, 65,536 for each.", {
    min: IDS_PER_SANDBOX,
    max: ID_LIMIT - IDS_PER_SANDBOX,
  }),
  volumeSize: mebibytes("64GiB", "Most bytes that all sandboxes together may write; taken as they are used."),
  ownView: flag(true, "Sandboxes see their own limits in /proc and /sys, not the machine's; needs FUSE."),
  spreadProcessors: flag(true, "Each sandbox starts on as many processors as its limit can keep busy."),
  blanks: integer("16", "Sandboxes begun ahead of need, about 1 MiB each; 0 makes each when it is asked for.", {
    min: 0,
    max: MAX_BLANKS,
  }),
  shmSize: mebibytes("64MiB", "Size of /dev/shm; what is in it counts as the sandbox's memory."),
};

/** The values of these settings. */
export type ContainerConfig = SettingsOf<typeof CONTAINER_SETTINGS>;
