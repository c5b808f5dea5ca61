import { watchContract } from "../watch.ts";
import { CONTAINER } from "./backend.ts";

watchContract(CONTAINER);
