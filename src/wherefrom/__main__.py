from wherefrom.cli import main

main()
