import { filesContract } from "../files.ts";
import { FULLVM } from "./backend.ts";

filesContract(FULLVM);
