import { manyContract } from "../many.ts";
import { CONTAINER } from "./backend.ts";

manyContract(CONTAINER);
