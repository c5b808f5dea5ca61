import { commandsContract } from "../commands.ts";
import { MICROVM } from "./backend.ts";

commandsContract(MICROVM);
