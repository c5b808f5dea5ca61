import { fileKillsContract } from "../file-kills.ts";
import { MICROVM } from "./backend.ts";

fileKillsContract(MICROVM);
