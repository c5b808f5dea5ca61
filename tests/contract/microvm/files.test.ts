import { filesContract } from "../files.ts";
import { MICROVM } from "./backend.ts";

filesContract(MICROVM);
