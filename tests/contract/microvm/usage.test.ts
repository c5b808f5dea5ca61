import { usageContract } from "../usage.ts";
import { MICROVM } from "./backend.ts";

usageContract(MICROVM);
