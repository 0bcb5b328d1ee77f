package main

import "golang.org/x/sys/cpu"

// instructionSets lists what matters to operators.
func instructionSets() []string {
	list := []string{}
	for _, isa := range []struct {
		name string
		has  bool
	}{
		{"avx2", cpu.X86.HasAVX2 && cpu.X86.HasFMA}, {"avx512", cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL},
		{"avx512-vnni", cpu.X86.HasAVX512VNNI}, {"avx512-bf16", cpu.X86.HasAVX512BF16}, {"amx", cpu.X86.HasAMXTile},
		{"neon", cpu.ARM64.HasASIMD}, {"sve", cpu.ARM64.HasSVE},
	} {
		if isa.has {
			list = append(list, isa.name)
		}
	}
	return list
}
