import { commandsContract } from "../commands.ts";
import { CONTAINER } from "./backend.ts";

commandsContract(CONTAINER);
