import { packContract } from "../pack.ts";
import { CONTAINER } from "./backend.ts";

packContract(CONTAINER);
