import { filesContract } from "../files.ts";
import { CONTAINER } from "./backend.ts";

filesContract(CONTAINER);
