import { usageContract } from "../usage.ts";
import { CONTAINER } from "./backend.ts";

usageContract(CONTAINER);
