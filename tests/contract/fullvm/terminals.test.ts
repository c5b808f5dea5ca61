import { terminalsContract } from "../terminals.ts";
import { FULLVM } from "./backend.ts";

terminalsContract(FULLVM);
