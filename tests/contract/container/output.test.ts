import { outputContract } from "../output.ts";
import { CONTAINER } from "./backend.ts";

outputContract(CONTAINER);
