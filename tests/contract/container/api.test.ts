import { apiContract } from "../api.ts";
import { CONTAINER } from "./backend.ts";

apiContract(CONTAINER);
