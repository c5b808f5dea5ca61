import { terminalsContract } from "../terminals.ts";
import { CONTAINER } from "./backend.ts";

terminalsContract(CONTAINER);
