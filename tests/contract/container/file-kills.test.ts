import { fileKillsContract } from "../file-kills.ts";
import { CONTAINER } from "./backend.ts";

fileKillsContract(CONTAINER);
