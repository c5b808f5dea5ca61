import { terminalsContract } from "../terminals.ts";
import { MICROVM } from "./backend.ts";

terminalsContract(MICROVM);
