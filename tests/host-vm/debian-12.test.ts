import { hostVmSuite } from "./suite.ts";

// Images are mounted through loop devices, disk limits are full quota groups, overlays take paths.
hostVmSuite({ suite: "bookworm", kernel: /^6\.1\./ });
