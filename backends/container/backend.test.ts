import { backendContract } from "#core/suites/backend-suite.ts";
import { containerRig } from "./test-support/rig.ts";

backendContract("the container backend", containerRig);
