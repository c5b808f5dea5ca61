import { watchContract } from "../watch.ts";
import { FULLVM } from "./backend.ts";

watchContract(FULLVM);
