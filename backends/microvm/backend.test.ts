import { backendContract } from "#core/suites/backend-suite.ts";
import { microvmRig } from "./test-support/rig.ts";

backendContract("the microVM backend", microvmRig);
