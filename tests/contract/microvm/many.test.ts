import { manyContract } from "../many.ts";
import { MICROVM } from "./backend.ts";

manyContract(MICROVM);
