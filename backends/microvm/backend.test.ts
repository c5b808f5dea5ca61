import { backendContract } from "#core/backend-suite.ts";
import { microvmRig } from "./test-support/rig.ts";

backendContract("the microVM backend", microvmRig);
