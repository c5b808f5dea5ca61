import { hostVmSuite } from "./suite.ts";

// Images are mounted without loop devices, disk limits are simple quotas; overlays still take paths, no descriptors.
hostVmSuite({ suite: "trixie", kernel: /^6\.12\./ });
