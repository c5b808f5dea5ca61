import { apiContract } from "../api.ts";
import { MICROVM } from "./backend.ts";

apiContract(MICROVM);
