import { forkContract } from "../fork.ts";
import { CONTAINER } from "./backend.ts";

forkContract(CONTAINER);
