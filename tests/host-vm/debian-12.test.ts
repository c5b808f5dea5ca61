import { hostVmSuite } from "./suite.ts";

hostVmSuite({ suite: "bookworm", kernel: /^6\.1\./ });
