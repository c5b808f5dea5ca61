import { outputContract } from "../output.ts";
import { FULLVM } from "./backend.ts";

outputContract(FULLVM);
