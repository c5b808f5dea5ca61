import { commandsContract } from "../commands.ts";
import { FULLVM } from "./backend.ts";

commandsContract(FULLVM);
