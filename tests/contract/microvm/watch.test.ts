import { watchContract } from "../watch.ts";
import { MICROVM } from "./backend.ts";

watchContract(MICROVM);
